// What the timeline of a job tells of the attempts to deliver its webhook. Pure.
import type { JobNote, StoredDelivery } from '../../store/store.ts';
import type { AfterAttempt, SendAttempt } from './webhooks.ts';

export function noteAttempt(
  { attempts }: StoredDelivery,
  made: SendAttempt,
  after: AfterAttempt,
  at: number,
): JobNote {
  const attempt = attempts + 1;
  switch (after.kind) {
    case 'delivered':
      return { at, event: 'webhook_delivered', attempt };
    case 'given_up':
      return { at, event: 'webhook_given_up', attempt, message: sayResult(made) };
    case 'postponed': {
      const { nextAt } = after.delivery;
      return { at, event: 'webhook_failed', attempt, message: sayResult(made), nextAt };
    }
  }
}

/** The delivery ends without a further attempt. */
export function noteEnd(
  { attempts: attempt }: StoredDelivery,
  message: string,
  at: number,
): JobNote {
  return { at, event: 'webhook_given_up', attempt, message };
}

/** For the job's clients: without the addresses of hosts, which only the log names. */
function sayResult({ detail, result }: SendAttempt): string {
  if (result === 'refused') return 'the platform may not call the address of the webhook';
  if (result === 'unreachable') return 'no connection to the receiver';
  return detail;
}
