// Measures how soon a worker gets a job that is ready, over HTTP. It speaks docs/protocol.md
// itself, so that the figure contains no worker code.
import { randomUUID } from 'node:crypto';
import { Pool } from 'undici';
import type { Platform } from './processes.ts';

const IDENTITY = { workerId: 'bench', incarnation: 1 };
const PREFIX_BYTES = 8;

interface Lease {
  jobId: string;
  attempt: number;
  token: string;
}

/** Takes one job at a time; each ends before the next take. @returns the time of each take, ms */
export async function timeTakes(
  platform: Platform,
  endpoint: string,
  count: number,
): Promise<number[]> {
  const worker = new TakingWorker(platform, endpoint);
  await worker.hello();
  const times: number[] = [];
  for (let i = 0; i < count; i++) {
    const startedAt = performance.now();
    const lease = await worker.take();
    times.push(performance.now() - startedAt);
    await worker.complete(lease);
  }
  await worker.bye();
  return times;
}

class TakingWorker {
  readonly #pool: Pool;
  readonly #path: string;
  readonly #authorization: string;

  constructor({ url, workerKey }: Platform, endpoint: string) {
    this.#pool = new Pool(url, { connections: 1 });
    this.#path = `/v2/${endpoint}/worker`;
    this.#authorization = `Bearer ${workerKey}`;
  }

  async hello(): Promise<void> {
    const about = { protocol: 1, version: '0', slots: 1, devices: [], outbox: [] };
    await this.#call('hello', { ...IDENTITY, ...about });
  }

  /** @throws Error if no job is ready */
  async take(): Promise<Lease> {
    const take = { ...IDENTITY, takeId: randomUUID(), max: 1, waitMs: 0, held: [] };
    const message = await this.#call('take', take);
    if (message.length === 0) throw new Error('no job is ready');
    const end = PREFIX_BYTES + message.readUInt32BE(0);
    return JSON.parse(message.toString('utf8', PREFIX_BYTES, end));
  }

  async complete({ attempt, jobId, token }: Lease): Promise<void> {
    const outcome = { kind: 'completed', executionMs: 0, output: 'value' };
    const report = { kind: 'outcome', jobId, attempt, token, seq: 1, outcome };
    const header = Buffer.from(JSON.stringify(report));
    const body = Buffer.from('null');
    const prefix = Buffer.alloc(PREFIX_BYTES);
    prefix.writeUInt32BE(header.length, 0);
    prefix.writeUInt32BE(body.length, 4);
    await this.#call('report', Buffer.concat([prefix, header, body]), {
      'content-type': 'application/vnd.millrace.frames',
      'millrace-worker': IDENTITY.workerId,
      'millrace-incarnation': String(IDENTITY.incarnation),
    });
  }

  async bye(): Promise<void> {
    await this.#call('bye', { ...IDENTITY, reason: 'drained', outbox: [] });
    await this.#pool.close();
  }

  async #call(verb: string, body: object, headers: Record<string, string> = {}): Promise<Buffer> {
    const answer = await this.#pool.request({
      method: 'POST',
      path: `${this.#path}/${verb}`,
      headers: {
        'content-type': 'application/json',
        authorization: this.#authorization,
        ...headers,
      },
      body: Buffer.isBuffer(body) ? body : JSON.stringify(body),
    });
    const bytes = Buffer.from(await answer.body.arrayBuffer());
    if (answer.statusCode < 300) return bytes;
    throw new Error(`${verb}: ${answer.statusCode} ${bytes.toString()}`);
  }
}
