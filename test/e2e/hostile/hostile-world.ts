// A real platform with a worker for its owner's endpoint, and an attacker: another user without `admin`,
// in a process of its own.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { issuedKey } from '../../../src/wire/resources/key.ts';
import { fillPath } from '../../../src/wire/routes/route.ts';
import { JOB_ROUTES } from '../../../src/wire/routes/routes.ts';
import { type NameServer, startNameServer } from '../../support/network/name-server.ts';
import { PlatformProcess } from '../../support/processes.ts';
import {
  type Attack,
  type PlatformKind,
  SILENT_DOMAIN,
  type Tally,
  type Target,
} from './attack.ts';
import type { FromAttacker, ToAttacker } from './attacker.ts';
import { GoodClient } from './good-client.ts';

const ATTACKER = fileURLToPath(new URL('attacker.ts', import.meta.url));
const WEB_SERVICE = fileURLToPath(new URL('silent-service.ts', import.meta.url));
const GOOD = 'good';

/** The platform's name server knows it: this machine. */
export const GOOD_RECEIVER = 'good.test';

const KIND_ARGS: Readonly<Record<PlatformKind, readonly string[]>> = {
  default: [],
  cramped: [],
  impatient: [
    ...['--stall-seconds', '1', '--headers-seconds', '1', '--in-flight-wait-ms', '200'],
    ...['--user-in-flight-mb', '32', '--max-connections', '500', '--max-user-connections', '300'],
    ...['--max-user-streams', '200'],
  ],
};

/** Of the platform's heap, MB; it needs a third of that. */
const CRAMPED_MB = 128;

const ATTACKER_SCOPES = [
  ...['jobs:read', 'jobs:write', 'endpoints:read', 'endpoints:write'],
  ...['pods:read', 'pods:write', 'keys:read', 'keys:write', 'worker'],
];

const created = z.looseObject({ id: z.string() });
const MB = 1_048_576;

/** Of the platform's process since they were last reset, or since its start. */
export interface Gauges {
  peakMb: number;
  /** Longest time that the event loop was held, ms. */
  heldMs: number;
  /** What it has read from sockets and files. */
  readMb: number;
  /** Reads of topics for event streams. */
  eventReads: number;
}

export class HostileWorld {
  readonly platform: PlatformProcess;
  readonly #names: NameServer;
  readonly #attacker: ChildProcess;
  readonly #target: Target;
  readonly #goodKey: string;

  private constructor(
    platform: PlatformProcess,
    parts: { names: NameServer; target: Target; goodKey: string },
  ) {
    this.platform = platform;
    this.#names = parts.names;
    this.#target = parts.target;
    this.#goodKey = parts.goodKey;
    this.#attacker = fork(ATTACKER);
  }

  static async open(kind: PlatformKind): Promise<HostileWorld> {
    const names = await startNameServer({
      records: { [GOOD_RECEIVER]: '127.0.0.1' },
      silent: [SILENT_DOMAIN],
    });
    const platform = await PlatformProcess.start({
      endpoints: [GOOD],
      args: [
        ...['--grpc-port', '0', '--engine', 'process', '--trust-users', '--trust-keys'],
        ...['--allow-private-webhooks', '--webhook-dns', names.address],
        ...['--log-level', 'warn', ...KIND_ARGS[kind]],
      ],
      ...(kind === 'cramped' && { env: { NODE_OPTIONS: `--max-old-space-size=${CRAMPED_MB}` } }),
    });
    platform.startWorker(GOOD, 'square.ts', '--jobs-per-thread', '8');
    const goodKey = await issueKey(platform, {
      ...{ name: 'good', scopes: [`jobs:read:${GOOD}`, `jobs:write:${GOOD}`] },
    });
    const target = await furnishAttacker(platform, kind);
    const world = new HostileWorld(platform, { names, target, goodKey });
    // The worker is there, and code that every job passes through is loaded.
    const client = world.startGoodClient();
    await client.serve(5);
    await client.stop();
    return world;
  }

  startGoodClient(pauseMs?: number): GoodClient {
    const { url } = this.platform;
    const options = { url, key: this.#goodKey, endpoint: GOOD };
    return new GoodClient(pauseMs === undefined ? options : { ...options, pauseMs });
  }

  /** Of the well-behaved user. */
  async submitGoodJob(webhook: string): Promise<void> {
    const response = await this.platform.fetch(fillPath(JOB_ROUTES.runJob, { endpoint: GOOD }), {
      method: 'POST',
      headers: { authorization: this.#goodKey, 'content-type': 'application/json' },
      body: JSON.stringify({ input: { n: 1, ms: 0 }, webhook }),
    });
    if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  }

  async prepare(attack: Attack, count: number): Promise<void> {
    await this.#ask({ kind: 'prepare', name: attack.name, target: this.#target, count });
  }

  /** @returns what the attacker saw; `beside` runs while it holds open what it has opened */
  async send(attack: Attack, count: number, beside: () => Promise<void>): Promise<Tally> {
    let message = await this.#ask({
      ...{ kind: 'send', name: attack.name, target: this.#target, count },
    });
    while (message.kind === 'holding') {
      await beside();
      message = await this.#ask({ kind: 'release' });
    }
    if (message.kind !== 'sent') throw new Error(`unexpected: ${message.kind}`);
    return message.tally;
  }

  async resetGauges(): Promise<Gauges> {
    await writeFile(`/proc/${this.#pid}/clear_refs`, '5');
    return this.readGauges();
  }

  /** The longest hold is then counted anew. */
  async readGauges(): Promise<Gauges> {
    const metrics = await (await this.platform.fetch('/metrics')).text();
    const held = /^nodejs_eventloop_lag_max_seconds (\S+)$/m.exec(metrics)?.[1];
    const status = await readFile(`/proc/${this.#pid}/status`, 'utf8');
    const io = await readFile(`/proc/${this.#pid}/io`, 'utf8');
    return {
      peakMb: Number(/VmHWM:\s+(\d+)/.exec(status)?.[1]) / 1_024,
      heldMs: Number(held) * 1_000,
      readMb: Number(/rchar: (\d+)/.exec(io)?.[1]) / MB,
      eventReads: Number(/^millrace_event_reads_total (\d+)$/m.exec(metrics)?.[1]),
    };
  }

  async close(): Promise<void> {
    const { exitCode, signalCode } = this.#attacker;
    if (exitCode === null && signalCode === null) {
      this.#attacker.kill('SIGKILL');
      await once(this.#attacker, 'exit');
    }
    await this.platform.close();
    await this.#names[Symbol.asyncDispose]();
  }

  get #pid(): number {
    return this.platform.process.child.pid ?? 0;
  }

  async #ask(message: ToAttacker): Promise<Exclude<FromAttacker, { kind: 'failed' }>> {
    const gone = new AbortController();
    const exited = once(this.#attacker, 'exit', { signal: gone.signal }).then(() => {
      throw new Error('the attacker process ended');
    });
    exited.catch(() => {});
    const answered = once(this.#attacker, 'message', { signal: gone.signal });
    answered.catch(() => {});
    this.#attacker.send(message);
    try {
      const [answer]: FromAttacker[] = await Promise.race([answered, exited]);
      if (!answer) throw new Error('the attacker said nothing');
      if (answer.kind === 'failed') throw new Error(`the attack failed: ${answer.error}`);
      return answer;
    } finally {
      gone.abort();
    }
  }
}

async function furnishAttacker(platform: PlatformProcess, kind: PlatformKind): Promise<Target> {
  const key = await issueKey(platform, {
    ...{ name: 'attacker', userId: 'mallory', scopes: ATTACKER_SCOPES },
  });
  const grpcUrl = await platform.process.find(/over gRPC at (grpc:\S+)/);
  const headers = { authorization: `Bearer ${key}` };
  const make = async (path: string, body: object) => {
    const response = await platform.fetch(path, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    return created.parse(await response.json()).id;
  };
  const idle = await make('/v1/templates', { name: 'idle', image: 'none', args: 'true' });
  const target: Target = {
    ...{ url: platform.url, grpcUrl, key, balanced: '' },
    endpoint: await make('/v1/endpoints', { name: 'mine', templateId: idle, workersMax: 0 }),
  };
  if (kind !== 'default') return target;
  const templateId = await make('/v1/templates', {
    ...{ name: 'web', image: 'none', ports: ['8000/http'] },
    args: `'${process.execPath}' '${WEB_SERVICE}'`,
  });
  target.balanced = await make('/v1/endpoints', {
    ...{ name: 'web', type: 'LOAD_BALANCER', templateId, workersMin: 1, workersMax: 1 },
    scaler: { type: 'REQUEST_COUNT', perWorker: 10_000 },
  });
  const answer = await fetch(`${platform.url}/lb/${target.balanced}/ping`, { headers });
  if (!answer.ok) throw new Error(`the endpoint does not serve: ${await answer.text()}`);
  return target;
}

async function issueKey(platform: PlatformProcess, creation: object): Promise<string> {
  const response = await platform.post('/v1/keys', creation);
  return issuedKey.parse(await response.json()).key;
}
