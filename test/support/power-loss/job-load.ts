// Clients of a platform whose machine loses power: they submit small and large jobs, some with an idempotency key,
// cancel some, and remember every acknowledgement. `check` compares these with what the platform says later.
import { createHash, randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';

const CLIENTS = 3;
/** Base64 of so many bytes is stored in a file. */
const LARGE_BYTES = 900_000;
/** Ended jobs that each check reads again, besides those that no check has read. */
const WATCHED = 20;
const POLL_MS = 20;

const reference = z.object({ id: z.string() });
const record = z.object({ status: z.string(), output: z.unknown().optional() });
type JobRecord = z.infer<typeof record>;

interface KnownJob {
  /** Hash of the input, which is the output as well. */
  hash: string;
  /** If it has a key. */
  submission?: Submission;
  /** Final status that the platform has reported. */
  end?: string;
  isChecked: boolean;
}

interface Submission {
  input: { text: string; n: number };
  key?: string;
}

export class JobLoad {
  readonly #where: () => { url: string; key: string };
  readonly #random: () => number;
  readonly #jobs = new Map<string, KnownJob>();
  /** Sent with a key, and not answered. */
  readonly #unanswered = new Set<Submission>();
  #submissions = 0;
  acknowledged = 0;
  readonly problems: string[] = [];

  /** `where`: the endpoint's URL and a key. */
  constructor(where: () => { url: string; key: string }, random: () => number) {
    this.#where = where;
    this.#random = random;
  }

  /** Resolves when the platform does not answer any more, or refuses, or has acknowledged so many jobs. */
  async run(jobs = Number.POSITIVE_INFINITY): Promise<void> {
    await Promise.all(Array.from({ length: CLIENTS }, () => this.#runClient(jobs)));
  }

  /** Notes each acknowledgement that the platform has forgotten. @throws Error if it does not answer */
  async check(): Promise<void> {
    const again = [...this.#unanswered];
    this.#unanswered.clear();
    for (const submission of again) await this.#submit(submission);
    for (const [id, job] of [...this.#jobs]) {
      if (job.submission && !job.isChecked) {
        const found = await this.#send(job.submission);
        if (found !== id) this.problems.push(`the key of job ${id} has job ${found}`);
      }
      const read = await this.#read(id);
      if (!read) this.#report(id, `job ${id} is lost`);
      else if (job.end !== undefined && read.status !== job.end)
        this.#report(id, `job ${id} was ${job.end} and is ${read.status}`);
      else this.#note(id, job, read);
      job.isChecked = job.end !== undefined;
    }
    const checked = [...this.#jobs].filter(([, { isChecked }]) => isChecked);
    for (const [id] of checked.slice(0, -WATCHED)) this.#jobs.delete(id);
  }

  /** Resolves when all jobs have ended. */
  async finish(): Promise<void> {
    for (const [id, job] of this.#jobs) {
      for (let read: JobRecord | undefined; job.end === undefined; await sleep(POLL_MS)) {
        read = await this.#read(id);
        if (!read) break;
        this.#note(id, job, read);
      }
    }
    await this.check();
  }

  #report(id: string, problem: string): void {
    this.problems.push(problem);
    this.#jobs.delete(id);
  }

  #note(id: string, job: KnownJob, { output, status }: JobRecord): void {
    if (status.startsWith('IN_')) return;
    job.end = status;
    if (status === 'COMPLETED' ? hash(output) !== job.hash : status !== 'CANCELLED')
      this.#report(id, `job ${id} ended as ${status} with a wrong output`);
  }

  async #runClient(jobs: number): Promise<void> {
    try {
      while (this.acknowledged < jobs) {
        const id = await this.#submit(this.#choose());
        const job = this.#jobs.get(id);
        const choice = this.#random();
        if (choice < 0.1) await this.#post(`cancel/${id}`);
        if (job && choice < 0.4) {
          const read = await this.#read(id);
          if (read) this.#note(id, job, read);
        }
      }
    } catch (error) {
      // The power has failed.
      if (!(error instanceof TypeError || error instanceof RefusedError)) throw error;
    }
  }

  #choose(): Submission {
    const bytes = this.#random() < 0.12 ? LARGE_BYTES : 30;
    const n = ++this.#submissions;
    const input = { n, text: randomBytes(bytes).toString('base64') };
    return this.#random() < 0.3 ? { input, key: `key-${n}` } : { input };
  }

  async #submit(submission: Submission): Promise<string> {
    const { input, key } = submission;
    if (key !== undefined) this.#unanswered.add(submission);
    const id = await this.#send(submission);
    this.#unanswered.delete(submission);
    this.acknowledged++;
    const known = { hash: hash(input), isChecked: false };
    this.#jobs.set(id, key === undefined ? known : { ...known, submission });
    return id;
  }

  async #send({ input, key }: Submission): Promise<string> {
    const body = { input, ...(key !== undefined && { idempotencyKey: key }) };
    return reference.parse(await this.#post('run', body)).id;
  }

  /** Undefined if the job does not exist. */
  async #read(id: string): Promise<JobRecord | undefined> {
    const { key, url } = this.#where();
    const response = await fetch(`${url}/status/${id}`, { headers: authorize(key) });
    const text = await response.text();
    if (response.status === 404) return undefined;
    if (!response.ok) throw new RefusedError(text);
    return record.parse(JSON.parse(text));
  }

  async #post(path: string, body: object = {}): Promise<unknown> {
    const { key, url } = this.#where();
    const response = await fetch(`${url}/${path}`, {
      method: 'POST',
      headers: { ...authorize(key), 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new RefusedError(text);
    return JSON.parse(text);
  }
}

/** The platform's disk has failed. */
class RefusedError extends Error {}

function authorize(key: string): Record<string, string> {
  return { authorization: `Bearer ${key}` };
}

function hash(value: unknown): string {
  return createHash('sha256').update(JSON.stringify(value)).digest('base64');
}
