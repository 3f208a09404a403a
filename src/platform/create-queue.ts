// Creates a queue with the sender of its webhooks, and the sender of a budget's notices.
import { BATCH_FORMS, RECORD_FORMATS } from '../api/adapters.ts';
import type { Clock } from '../base/clock.ts';
import { createNameResolver } from '../base/net/name-resolver.ts';
import { packageVersion } from '../base/package-info.ts';
import type { NoticeSender } from '../control/billing/billing-keeper.ts';
import { Queue, type QueueOptions } from '../queue/queue.ts';
import { generatePlatformSecret, HttpWebhookSender } from '../queue/webhooks/webhook-sender.ts';
import {
  decideAfterAttempt,
  nameReceiver,
  DEFAULT_WEBHOOK_SETTINGS as settings,
  type WebhookSender,
} from '../queue/webhooks/webhooks.ts';
import { locateWebhookSecrets, useWebhookSecrets } from './files/secret-files.ts';
import { openHistoryTarget } from './history/open-target.ts';
import type { CompleteOptions } from './platform-options.ts';

interface QueueParts
  extends Omit<QueueOptions, 'formats' | 'history' | 'isRecording' | 'settings' | 'webhooks'>,
    Pick<CompleteOptions, 'dataFolder' | 'history' | 'settings' | 'webhooks'> {}

/** @throws PlatformOptionError */
export function createQueue(options: QueueParts): Queue {
  const { history, settings, webhooks, ...parts } = options;
  return new Queue({
    ...parts,
    ...(settings && { settings }),
    webhooks: createWebhookSender(options),
    history: openHistoryTarget(history, webhooks.chooseProxy),
    formats: RECORD_FORMATS,
    batchForms: BATCH_FORMS,
    isRecording: true,
  });
}

/** @throws PlatformOptionError */
export function createWebhookSender({
  dataFolder,
  webhooks,
}: Pick<QueueParts, 'dataFolder' | 'webhooks'>): HttpWebhookSender {
  const { addresses = 'public', chooseProxy, nameServers, secretFile } = webhooks;
  const path = secretFile ?? (dataFolder && locateWebhookSecrets(dataFolder));
  const secrets = path === undefined ? [generatePlatformSecret()] : useWebhookSecrets(path);
  const resolve = createNameResolver({ servers: nameServers });
  const version = packageVersion();
  return new HttpWebhookSender({ secrets, addresses, resolve, chooseProxy, version });
}

/**
 * Posts the notices of budgets as the webhooks of jobs are posted: signed, to permitted addresses, with the same retries.
 * The secret of a notice is derived from the ID of its budget.
 */
export function createNoticeSender(webhooks: WebhookSender, clock: Clock): NoticeSender {
  return {
    judge: (url) => webhooks.judge(url),
    send: async ({ attempts, body, budgetId, id, url, userId }, signal) => {
      const bytes = Buffer.from(body);
      const delivery = {
        id,
        userId,
        endpointId: budgetId,
        jobId: '',
        url,
        receiver: nameReceiver(url),
        // Only the number of attempts bounds a notice, so that its age need not be known.
        bytes: bytes.length,
        attempts,
        createdAt: 0,
        platformRanMs: 0,
        nextAt: 0,
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
