// Posts the notices of budgets as the webhooks of jobs are posted: signed, to permitted addresses, with the same retries.
import type { Clock } from '../../base/clock.ts';
import type { NoticeSender } from '../../control/billing/budget-notices.ts';
import {
  decideAfterAttempt,
  nameReceiver,
  DEFAULT_WEBHOOK_SETTINGS as settings,
  type WebhookSender,
} from '../../queue/webhooks/webhooks.ts';

/** The secret of a notice is derived from the ID of its budget. */
export function createNoticeSender(webhooks: WebhookSender, clock: Clock): NoticeSender {
  return {
    judge: (url) => webhooks.judge(url),
    send: async ({ attempts, body, budgetId, id, url, userId }, signal) => {
      const bytes = Buffer.from(body);
      const delivery = {
        ...{ id, userId, endpointId: budgetId, jobId: '', url, receiver: nameReceiver(url) },
        // Only the number of attempts bounds a notice, so that its age need not be known.
        ...{ bytes: bytes.length, attempts, createdAt: 0, platformRanMs: 0, nextAt: 0 },
      };
      const record = async function* () {
        yield bytes;
      };
      const made = await webhooks.send(delivery, record, signal);
      if (!made) return undefined;
      const moment = { now: clock.now(), ranMs: 0, random: Math.random, settings };
      const after = decideAfterAttempt(delivery, made, moment);
      if (after.kind !== 'postponed') return after;
      return { kind: 'postponed', nextAt: after.delivery.nextAt, reason: made.detail };
    },
    close: () => webhooks.close(),
  };
}
