// Admits submissions to the queue: within the endpoint's limit, and once for each idempotency key.
import {
  NO_TURN,
  type Payload,
  type Reader,
  type Step,
  type StoredEndpoint,
  type StoredJob,
  type Transaction,
} from '../store/store.ts';
import { QUEUE_FULL_RETRY_MS } from '../wire/job/job.ts';
import { ProblemError } from '../wire/problem.ts';
import { isWebhookUrl } from '../wire/webhook.ts';
import type { ChosenIds } from './chosen-ids.ts';
import { readEndpoint } from './endpoint-removal.ts';
import { createJob, DEFAULT_PRIORITY, type Submission } from './new-job.ts';
import type { WebhookSender } from './webhooks/webhooks.ts';

/**
 * Why a webhook URL is refused: no delivery attempt could call it. The end of a job must not fail because of its
 * webhook, so the URL is checked now.
 */
export function judgeWebhook(
  { webhook }: Pick<Submission, 'webhook'>,
  sender: WebhookSender | undefined,
): ProblemError | undefined {
  if (webhook === undefined) return undefined;
  const reason = isWebhookUrl(webhook) ? sender?.judge(webhook) : 'not an http or https URL';
  if (reason === undefined) return undefined;
  const errors = [`webhook: ${reason}`];
  return new ProblemError('invalid', `the webhook cannot be called: ${reason}`, { errors });
}

export interface Arrival {
  id: string;
  input: Payload;
  now: number;
  position: number;
  chosen: ChosenIds;
}

export type AdmittingEndpoint = Pick<StoredEndpoint, 'inQueue' | 'settings'>;

export interface Inserted {
  job: StoredJob;
  isNew: boolean;
}

/** `endpoint`: read in the same operation. @throws ProblemError if the submission is refused; then it has changed nothing */
export function* insert(
  tx: Transaction,
  endpoint: AdmittingEndpoint,
  { arrival, submission }: { submission: Submission; arrival: Arrival },
): Step<Inserted> {
  const first = yield* admit(tx, endpoint, { submission, chosen: arrival.chosen });
  if (first) return { job: first, isNew: false };
  const { id, input, now, position } = arrival;
  const turn = yield* chooseTurn(tx, submission);
  const job = createJob(submission, endpoint, { id, now, position, turn });
  yield* tx.insertJob(job, input);
  return { job, isNew: true };
}

/**
 * A delayed job of a group takes its turn when its delay ends: it must neither hold up the group's other jobs, nor
 * get ahead with many others that were delayed. Jobs without a group keep the order of their submission.
 */
function* chooseTurn(tx: Transaction, { endpointId, policy }: Submission): Step<number> {
  const { delay = 0, group = null, priority = DEFAULT_PRIORITY } = policy;
  if (group !== null && delay > 0) return NO_TURN;
  return yield* tx.nextTurn({ endpointId, group, priority });
}

/** @throws ProblemError `not_found`, `conflict` if the endpoint has no queue */
export function* readQueue(tx: Reader, endpointId: string): Step<StoredEndpoint> {
  const endpoint = yield* readEndpoint(tx, endpointId);
  if (endpoint.deployment?.type !== 'LOAD_BALANCER') return endpoint;
  const detail = `${endpointId} is a load-balancing endpoint and has no queue; send requests to /lb`;
  throw new ProblemError('conflict', detail);
}

/**
 * Returns the job that came before with the same ID or idempotency key. @throws ProblemError if the submission is
 * refused
 */
export function* admit(
  tx: Reader,
  { inQueue, settings }: AdmittingEndpoint,
  { chosen, submission }: { submission: Submission; chosen: ChosenIds },
): Step<StoredJob | undefined> {
  const { endpointId, idempotency, newJob } = submission;
  // Not for every chosen ID: looking for a job that does not exist asks the database.
  if (newJob && (newJob.isRepeated || chosen.isRepeated(newJob.requestId ?? newJob.id))) {
    const first = yield* tx.job({ endpointId, id: newJob.id });
    if (first) return first;
  }
  if (idempotency) {
    const first = yield* tx.jobByIdempotencyKey(endpointId, idempotency.key);
    if (first && first.requestHash !== idempotency.requestHash) {
      throw new ProblemError(
        'conflict',
        `idempotencyKey "${idempotency.key}" was used with another body, for job ${first.id}`,
      );
    }
    if (first) return first;
  }
  const { maxQueued } = settings;
  if (inQueue < maxQueued) return undefined;
  throw new ProblemError(
    'queue_full',
    `${maxQueued} jobs are queued, the endpoint's limit; retry later`,
    { retryAfterMs: QUEUE_FULL_RETRY_MS },
  );
}
