// Gives a platform on Kubernetes random orders and kills it at random instants. In the end the namespace has exactly the
// objects of the pods that the platform lists, and at no time had a pod two Pods.
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { fixture } from '../processes.ts';
import { createRandom } from '../random.ts';
import type { KubeAccess, KubeObject } from './client.ts';
import type { Cluster } from './cluster.ts';
import {
  GPU_PRODUCT,
  GPU_SETTINGS,
  KubePlatform,
  type KubePlatformOptions,
  POD_LABEL,
  WORKER_IMAGE,
} from './kube-platform.ts';
import { PodHistory } from './pod-history.ts';

const MAX_WORKERS = 3;
const ORDERS = 6;
/** The longest time between the first order of a round and the kill, ms. */
const MAX_LIFE_MS = 600;
const POLL_MS = 100;
const ACTIONS = ['stop', 'start', 'restart', 'terminate'] as const;
const EXPECTED_CODES = ['404', '409', '503'];
const STEADY = ['RUNNING', 'EXITED'];

const secretData = z.record(z.string(), z.string());

export interface KillWorldOptions extends Omit<KubePlatformOptions, 'settings'> {
  seed: number;
  /** Default: `killed`. */
  platform?: string;
}

export class KillWorld {
  readonly platform: KubePlatform;
  readonly #history: PodHistory;
  readonly #random: () => number;
  readonly #endpoint: string;
  readonly #jobs: string[] = [];
  readonly #refusals: string[] = [];
  #orders = 0;

  private constructor(parts: {
    platform: KubePlatform;
    history: PodHistory;
    random: () => number;
    endpoint: string;
  }) {
    this.platform = parts.platform;
    this.#history = parts.history;
    this.#random = parts.random;
    this.#endpoint = parts.endpoint;
  }

  static async open({ platform: name = 'killed', seed, ...place }: KillWorldOptions) {
    const settings = { platform: name, workerStateGb: 1, ...GPU_SETTINGS };
    const platform = await KubePlatform.start({ ...place, settings });
    const template = { name: 'worker', image: WORKER_IMAGE, args: fixture('tagged.ts') };
    const templateId = await platform.create('/v1/templates', { ...template, env: { TAG: 'a' } });
    const sizes = { workersMin: 1, workersMax: MAX_WORKERS, idleTimeout: 1 };
    const creation = { name: 'jobs', templateId, ...sizes };
    const endpoint = await platform.create('/v1/endpoints', creation);
    const history = new PodHistory(place.cluster, place.namespace, name);
    return new KillWorld({ platform, history, random: createRandom(seed), endpoint });
  }

  /** Random orders, the kill while the platform carries them out, and a new process. */
  async round(): Promise<void> {
    const pods = await this.#listOwn();
    const orders = Array.from({ length: ORDERS }, () => this.#order(pods.map(({ id }) => id)));
    await sleep(this.#random() * MAX_LIFE_MS);
    await this.platform.kill();
    await Promise.all(orders);
    await this.platform.restart();
  }

  /** Resolves when the namespace has what the platform lists, and all jobs are completed. @throws Error */
  async settle(limitMs: number): Promise<void> {
    const end = performance.now() + limitMs;
    for (;;) {
      const faults = await this.#findFaults();
      if (faults.length === 0) break;
      if (performance.now() > end) throw new Error(`it does not settle:\n${faults.join('\n')}`);
      await sleep(POLL_MS);
    }
    const { doubles } = this.#history;
    if (doubles.length > 0) throw new Error(`two Pods at a time: ${doubles.join(', ')}`);
  }

  /** Removes all that the platform has. Resolves when the namespace has nothing of it. @throws Error */
  async clear(limitMs: number): Promise<void> {
    const { platform } = this;
    const pods = await this.#listOwn();
    await Promise.all(pods.map(({ id }) => platform.call('DELETE', `/v2/pods/${id}`)));
    await platform.call('DELETE', `/v1/endpoints/${this.#endpoint}`);
    const end = performance.now() + limitMs;
    for (;;) {
      const { claims, pods, secrets } = await platform.listObjects();
      const left = [...claims, ...pods, ...secrets].map(({ metadata }) => metadata.name);
      if (left.length === 0) return;
      if (performance.now() > end) throw new Error(`left behind: ${left.join(', ')}`);
      await sleep(POLL_MS);
    }
  }

  async close(): Promise<void> {
    await this.#history.close();
    await this.platform.close();
  }

  async #listOwn() {
    const pods = await this.platform.listPods();
    return pods.filter(({ endpointId }) => endpointId == null);
  }

  /** Its answer may be lost, and the platform may refuse it. */
  async #order(ids: readonly string[]): Promise<void> {
    const number = this.#orders++;
    const id = ids[Math.floor(this.#random() * ids.length)];
    const kind = this.#random();
    const { platform } = this;
    const say = (method: string, path: string, body: object) =>
      platform.call(method, path, body).catch((error: unknown) => this.#noteRefusal(error));
    if (kind < 0.25 || id === undefined) {
      const mounts = { persistent: { size: 10, path: '/data' } };
      const what = { image: 'none', args: 'sleep 1000', env: { ORDER: `order ${number}` } };
      await say('POST', '/v2/pods', {
        name: `pod-${number}`,
        ...what,
        gpu: { id: GPU_PRODUCT },
        mounts,
      });
    } else if (kind < 0.6) {
      const action = ACTIONS[Math.floor(this.#random() * ACTIONS.length)];
      await say('POST', `/v2/pods/${id}/action`, { action });
    } else if (kind < 0.7) {
      await say('PATCH', `/v2/pods/${id}`, { env: { ORDER: `order ${number}` } });
    } else if (kind < 0.85) {
      const workersMin = Math.floor(this.#random() * (MAX_WORKERS + 1));
      await say('PATCH', `/v1/endpoints/${this.#endpoint}`, { workersMin });
    } else {
      const job = platform.submit(this.#endpoint, { n: number, ms: 200 });
      await job.then((id) => this.#jobs.push(id)).catch((error) => this.#noteRefusal(error));
    }
  }

  /** Only a lost answer, an action that the status does not allow, and a pod that is gone are expected. */
  #noteRefusal(error: unknown): void {
    const code = /: (\d{3}): /.exec(String(error))?.[1];
    if (code !== undefined && !EXPECTED_CODES.includes(code)) this.#refusals.push(String(error));
  }

  async #findFaults(): Promise<string[]> {
    const { platform } = this;
    const pods = await platform.listPods();
    const { claims, pods: running, secrets } = await platform.listObjects();
    const faults = [...this.#refusals];
    const expectNames = (what: string, found: KubeObject[], counts: number[]) => {
      const names = found.map(({ metadata }) => metadata.name);
      if (!counts.includes(names.length)) faults.push(`${what}: ${names.join(', ') || 'none'}`);
    };
    for (const { endpointId, env, id, reason, status } of pods) {
      const isOf = ({ metadata }: KubeObject) => metadata.labels?.[POD_LABEL] === id;
      if (!STEADY.includes(status)) faults.push(`pod ${id} is ${status}: ${reason}`);
      const isRunning = status === 'RUNNING';
      // A pod that was stopped before its first start, or changed after its stop, has no container.
      expectNames(`Secrets of ${id}`, secrets.filter(isOf), isRunning ? [1] : [0, 1]);
      const hasRun = this.#history.all.some(({ pod }) => pod === id);
      const ofMount = hasRun ? [1] : [0, 1];
      expectNames(`claims of ${id}`, claims.filter(isOf), endpointId == null ? ofMount : [0]);
      const own = running.filter(isOf);
      const alive = own.filter(({ status }) => status?.['phase'] === 'Running');
      expectNames(`Pods of ${id}, which is ${status}`, alive, [isRunning ? 1 : 0]);
      const [secret] = secrets.filter(isOf);
      if (own.some(({ metadata }) => metadata.name !== secret?.metadata.name)) {
        faults.push(`${id} has a Pod of another generation`);
      }
      const order = env['ORDER'];
      if (order !== undefined && secret && !readValues(secret).includes(order)) {
        faults.push(`the Secret of ${id} is not that of ${order}`);
      }
    }
    const known = new Set(pods.map(({ id }) => id));
    for (const { kind, metadata } of [...running, ...secrets, ...claims]) {
      const pod = metadata.labels?.[POD_LABEL];
      if (pod !== undefined && !known.has(pod)) faults.push(`orphan ${kind} ${metadata.name}`);
    }
    const states = this.#jobs.map(async (job) => ({
      ...{ job, ...(await platform.readJob(this.#endpoint, job)) },
    }));
    for (const { job, status } of await Promise.all(states)) {
      if (status !== 'COMPLETED') faults.push(`job ${job} is ${status}`);
    }
    return faults;
  }
}

function readValues(secret: KubeObject): string[] {
  const data = secretData.parse(secret['data']);
  return Object.values(data).map((value) => Buffer.from(value, 'base64').toString());
}

const LIMIT_MS = 3 * 60_000;

export interface KillRounds {
  cluster: Cluster;
  rounds: number;
  seed: number;
  /** Default: an administrator's. */
  createAccess?: (namespace: string) => Promise<KubeAccess>;
}

/** @throws Error that says what is wrong with the objects of the namespace, with the seed */
export async function runKillRounds(run: KillRounds): Promise<void> {
  const { cluster, createAccess, rounds, seed } = run;
  const namespace = await cluster.createNamespace();
  const access = (await createAccess?.(namespace)) ?? cluster.access;
  const world = await KillWorld.open({ cluster, namespace, access, seed });
  try {
    for (let round = 0; round < rounds; round++) await world.round();
    await world.settle(LIMIT_MS);
    await world.clear(LIMIT_MS);
  } catch (error) {
    throw new Error(`SEED=${seed}: ${error instanceof Error ? error.message : error}`);
  } finally {
    await world.close();
  }
}
