// A client that cancels, retries or deletes all jobs that match a filter, while commits fail, answers are lost and the platform
// restarts between its requests. Checks which jobs these requests change, and that they leave none out.
import type { ChangePage, ChangeRequest } from '../../src/queue/job-changes.ts';
import { isDeadLetter, type StoredJob } from '../../src/store/store.ts';
import {
  CHANGED_STATUSES,
  isTerminal,
  type JobChange,
  type JobStatus,
} from '../../src/wire/job/job.ts';
import type { Ledger } from './ledger.ts';
import type { VirtualTime } from './virtual-time.ts';

/** Tag of some jobs of a world. */
export const BULK_TAG = 'bulk';

const CHANGES: readonly JobChange[] = ['retry', 'cancel', 'delete'];
/** A request fails with a commit, which is rare. */
const MAX_REQUESTS = 20;

interface ChangedWorld {
  readonly clock: Pick<VirtualTime, 'advance'>;
  readonly isSheltered: boolean;
  readonly ledger: Ledger;
  /** Undefined: nothing happened, because the store failed. */
  changeMany(request: Omit<ChangeRequest, 'endpointId'>): Promise<ChangePage | undefined>;
  restartPlatform(downMs: number): Promise<void>;
  submit(): Promise<void>;
}

/** What one client asks for, and what has come of it. */
export class BulkChange {
  readonly change: JobChange;
  readonly asOf: number;
  readonly #isTagged: boolean;
  readonly #before: ReadonlyMap<string, StoredJob>;
  readonly #changed = new Set<string>();

  constructor(
    { asOf, change, criteria }: { asOf: number } & Pick<ChangeRequest, 'change' | 'criteria'>,
    stored: ReadonlyMap<string, StoredJob>,
  ) {
    this.asOf = asOf;
    this.change = change;
    this.#isTagged = criteria.tags !== undefined;
    this.#before = new Map(stored);
  }

  /** Returns the flaw of a change that is one of these requests. */
  judge(before: StoredJob): string | undefined {
    if (this.#changed.has(before.id)) return 'was changed twice';
    this.#changed.add(before.id);
    return this.#isWanted(before)
      ? undefined
      : `was changed, though ${this.change} did not name it`;
  }

  /** Whether the change is one of these requests: nobody else makes any like it meanwhile. */
  isOne(before: StoredJob, after: StoredJob | undefined, now: number): boolean {
    if (this.change === 'delete') return !after && before.expiresAt > now;
    if (!after || after.status === before.status) return false;
    if (this.change === 'retry') return isTerminal(before.status) && after.status === 'IN_QUEUE';
    // Parents and schedules cancel jobs too.
    const isOwn = after.error?.code !== 'parent_failed' && !after.tick;
    return after.status === 'CANCELLED' && isOwn;
  }

  #isWanted(job: StoredJob): boolean {
    const { endedAt, status, submittedAt, tags } = job;
    const statuses: readonly JobStatus[] = CHANGED_STATUSES[this.change];
    const isIn = submittedAt <= this.asOf && !isDeadLetter(job);
    const isNamed = !this.#isTagged || tags?.includes(BULK_TAG) === true;
    return isIn && isNamed && statuses.includes(status) && (endedAt ?? 0) <= this.asOf;
  }

  /** Jobs that all requests have left as they were, though they had to change them. */
  listLeftOut(stored: ReadonlyMap<string, StoredJob>): StoredJob[] {
    // A job whose parent has not completed is not retried.
    const isFree = ({ links }: StoredJob) => this.change !== 'retry' || !links?.parents.length;
    return [...this.#before.values()].filter(
      (job) => stored.get(job.id) === job && this.#isWanted(job) && isFree(job),
    );
  }
}

/** `turn` chooses what is asked for: it takes no random number, which would change the world of every seed. */
export async function playBulkChange(world: ChangedWorld, turn: number): Promise<void> {
  const { ledger } = world;
  const change = CHANGES[turn % CHANGES.length] ?? 'cancel';
  const criteria = turn % 2 === 0 ? { tags: [BULK_TAG] } : {};
  const counted = await world.changeMany({ change, criteria, dryRun: true });
  if (!counted) return;
  const { asOf } = counted;
  ledger.bulk = new BulkChange({ asOf, change, criteria }, ledger.stored);
  // Must not be changed, however many requests follow.
  await world.clock.advance(1);
  await world.submit();
  const isDone = await sendAll(world, { change, criteria, asOf, dryRun: false }, turn);
  const left = isDone ? ledger.bulk.listLeftOut(ledger.stored) : [];
  for (const { id, status } of left)
    ledger.faults.push(`job ${id}: ${status}: ${change} left it out`);
  ledger.bulk = undefined;
}

/** @returns whether all requests were answered */
async function sendAll(
  world: ChangedWorld,
  request: Omit<ChangeRequest, 'endpointId'>,
  turn: number,
): Promise<boolean> {
  let { from } = request;
  let isLost = false;
  for (let n = 0; n < MAX_REQUESTS; n++) {
    const page = await world.changeMany({ ...request, from });
    if (!world.isSheltered && (turn + n) % 3 === 0) await world.restartPlatform(1_000 + 10_000 * n);
    // The client repeats the request, and so after an answer that it does not get.
    if (!page) continue;
    isLost = !isLost && (turn + n) % 2 === 0;
    if (isLost) {
      world.ledger.count('bulk_repeated');
      continue;
    }
    if (!page.next) return true;
    from = page.next;
  }
  return false;
}
