// The engine for Kubernetes: a container is a Secret, its record, and while it runs a bare Pod. Each verb makes its
// requests and then looks at the objects; no answer is relied on. The cluster chooses nodes and devices. At the
// end: the changes of the platform's Pods, and why a Pod does not start.

import { z } from 'zod';
import { type Clock, sleep, systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { ChangeFeed, type ChangeStream, readDocuments, readLogTail } from '../answers.ts';
import {
  type Container,
  type ContainerSpec,
  type ContainerStats,
  type ContainerWait,
  type Engine,
  type EngineCapabilities,
  EngineError,
  type NetworkVolumes,
  type StateVolumes,
} from '../engine.ts';
import { ApiClient, type Fence, judgeRefusal, KubernetesError } from './api-client.ts';
import { Claims } from './claims.ts';
import type { ApiAccess } from './login.ts';
import { CONTAINER, describeSecret, listOwnClaims } from './manifests.ts';
import { PLATFORM_LABEL, POD_LABEL, readSpec, writeSelector } from './names.ts';
import { PodRuns } from './pod-runs.ts';
import {
  boundedText,
  type KubeObject,
  type KubePod,
  measureUsage,
  podList,
  usageAnswer,
  viewContainer,
} from './pod-view.ts';
import { describeCapabilities, type KubernetesSettings } from './settings.ts';

/** How long `start` waits for the container, so that a caller mostly finds it running afterwards. */
const START_WAIT_MS = 2_000;
/** How long the end of a log is read. */
const LOG_LIMIT_MS = 30_000;
const METRICS = '/apis/metrics.k8s.io/v1beta1';

export interface KubernetesEngineOptions {
  /** Part of the names and labels of everything it makes: objects of other platforms stay untouched. */
  platform: string;
  access: ApiAccess;
  settings: KubernetesSettings;
  log: Log;
  /**
   * Called when a verb begins that changes something; its result is called before each request of the verb. Default: the
   * process is the only one that changes the platform's objects.
   */
  openFence?: (() => Fence) | undefined;
  /** Limit of a call, ms. Default: 30,000. */
  callLimitMs?: number;
  /** Default: 2,000. */
  startWaitMs?: number;
  clock?: Clock;
}

export class KubernetesEngine implements Engine {
  readonly kind = 'kubernetes';
  readonly capabilities: EngineCapabilities;
  readonly stateVolumes?: StateVolumes;
  readonly networkVolumes: NetworkVolumes = {
    remove: (source) => this.#change(() => this.#claims.ofUsers.remove(source)),
  };
  readonly #options: KubernetesEngineOptions;
  readonly #clock: Clock;
  readonly #client: ApiClient;
  readonly #claims: Claims;
  readonly #runs: PodRuns;
  readonly #changes: ChangeFeed;

  constructor(options: KubernetesEngineOptions) {
    const { access, callLimitMs, clock = systemClock, log, platform, settings } = options;
    this.#options = options;
    this.capabilities = describeCapabilities(settings);
    this.#clock = clock;
    this.#client = new ApiClient(access, callLimitMs);
    const client = this.#client;
    this.#claims = new Claims({ client, platform, settings, clock });
    this.#runs = new PodRuns({ client, platform, clock });
    const labelSelector = writeSelector({ [PLATFORM_LABEL]: platform });
    this.#changes = new ChangeFeed({
      read: (stream) => watchPods({ client, labelSelector }, stream),
      onFailure: (err) => log.debug({ err }, 'watching Pods failed, retrying'),
      clock,
    });
    if (settings.workerStateGb === undefined) return;
    const { ofEndpoints } = this.#claims;
    this.stateVolumes = {
      listEndpoints: () => attempt(() => ofEndpoints.listEndpoints()),
      remove: (endpointId) => this.#change(() => ofEndpoints.remove(endpointId)),
    };
  }

  create(spec: ContainerSpec): Promise<void> {
    return this.#begin(async () => {
      const { platform, settings } = this.#options;
      const secret = describeSecret(spec, { platform, settings });
      if (await this.#hasRecord(spec)) return;
      for (const claim of listOwnClaims(spec, { platform, settings })) {
        await this.#claims.provide(claim);
      }
      await this.#runs.record(secret);
      if (await this.#hasRecord(spec)) return;
      throw new EngineError('unavailable', `the Secret of ${spec.id} was not found`);
    });
  }

  start(id: string): Promise<void> {
    return this.#begin(async () => {
      const record = await this.#findRecord(id);
      if (!record) throw new EngineError('unavailable', `container of ${id} not found`);
      await this.#runs.start(record);
      const { startWaitMs = START_WAIT_MS } = this.#options;
      const until = this.#clock.now() + startWaitMs;
      for (;;) {
        const container = await this.#inspect(id);
        const { message, isFinal } = container?.waiting ?? { isFinal: false };
        if (isFinal) throw new EngineError('refused', message ?? '');
        if (container?.state !== 'starting' || message !== undefined) return;
        if (this.#clock.now() >= until) return;
        await sleep(this.#clock, 50);
      }
    });
  }

  stop(id: string, graceMs: number): Promise<void> {
    return this.#change(async () => {
      const record = await this.#findRecord(id);
      if (record) await this.#runs.stop(record, graceMs);
    });
  }

  remove(id: string, volumes: 'keep' | 'remove'): Promise<void> {
    return this.#change(async () => {
      await this.#runs.remove(id);
      if (volumes === 'remove') await this.#claims.removeOfPod(id);
    });
  }

  inspect(id: string): Promise<Container | undefined> {
    return attempt(() => this.#inspect(id));
  }

  list(): Promise<Container[]> {
    return attempt(async () => {
      const [records, pods] = await Promise.all([this.#runs.listRecords(), this.#runs.listPods()]);
      const ids = new Set(
        [...records, ...pods].flatMap(({ metadata }) => metadata.labels?.[POD_LABEL] ?? []),
      );
      const isOf = (id: string) => (object: KubeObject) =>
        object.metadata.labels?.[POD_LABEL] === id;
      return [...ids].flatMap(
        (id) => this.#view(records.filter(isOf(id)), pods.filter(isOf(id))) ?? [],
      );
    });
  }

  stats(id: string): Promise<ContainerStats | undefined> {
    return attempt(async () => {
      const [record] = await this.#runs.listRecords(id);
      const limits = record && readSpec(this.#options.platform, record.metadata)?.limits;
      // Without a limit there is no share of it.
      if (!limits || (await this.#inspect(id))?.state !== 'running') return undefined;
      const path = await this.#client.pathOf('pods', record.metadata.name, METRICS);
      const found = usageAnswer.safeParse(await this.#client.find({ method: 'GET', path })).data;
      return found && measureUsage(found, limits);
    });
  }

  readLog(id: string, maxBytes: number): Promise<Uint8Array> {
    return attempt(async () => {
      const record = await this.#findRecord(id);
      if (!record) return new Uint8Array();
      return readLogTail((lines) => openLog(this.#client, record.metadata.name, lines), maxBytes);
    });
  }

  watch(onChange: (id: string) => void): () => void {
    return this.#changes.listen(onChange);
  }

  async close(): Promise<void> {
    this.#changes.close();
    await this.#client.close();
  }

  /** A start that cannot succeed is `refused`. */
  #begin(verb: () => Promise<void>): Promise<void> {
    return this.#change(() =>
      verb().catch((error: unknown) => {
        throw error instanceof KubernetesError ? judgeRefusal(error) : error;
      }),
    );
  }

  /** A verb that changes something. */
  #change(verb: () => Promise<void>): Promise<void> {
    const fence = this.#options.openFence?.();
    return attempt(() => (fence ? this.#client.within(fence, verb) : verb()));
  }

  async #inspect(id: string): Promise<Container | undefined> {
    const [records, pods] = await Promise.all([
      this.#runs.listRecords(id),
      this.#runs.listPods(id),
    ]);
    const container = this.#view(records, pods);
    if (container?.state !== 'starting' || container.waiting) return container;
    const [pod] = pods;
    // Without the right to read Events, the reason stays unknown.
    const waiting =
      pod && (await findWarning(this.#client, pod.metadata.uid).catch(() => undefined));
    return waiting ? { ...container, waiting } : container;
  }

  /**
   * Of several generations the newest. An older one can only be there if a platform process that was replaced finished a
   * request late; it is removed together with the pod's next container.
   */
  #view(records: readonly KubeObject[], pods: readonly KubePod[]): Container | undefined {
    const { platform } = this.#options;
    const names = new Set([...records, ...pods].map(({ metadata }) => metadata.name));
    const isNamed = (name: string) => (object: KubeObject) => object.metadata.name === name;
    const now = this.#client.now() ?? this.#clock.now();
    const [newest] = [...names]
      .flatMap((name) => {
        const objects = { record: records.find(isNamed(name)), pod: pods.find(isNamed(name)) };
        return viewContainer(platform, objects, now) ?? [];
      })
      .sort((a, b) => b.generation - a.generation);
    return newest;
  }

  async #findRecord(id: string): Promise<KubeObject | undefined> {
    const generationOf = ({ metadata }: KubeObject) =>
      readSpec(this.#options.platform, metadata)?.generation ?? 0;
    const records = await this.#runs.listRecords(id);
    return records.sort((a, b) => generationOf(b) - generationOf(a))[0];
  }

  /** @throws EngineError if there is another generation */
  async #hasRecord({ generation, id }: ContainerSpec): Promise<boolean> {
    const made = await this.#inspect(id);
    if (!made || made.generation === generation) return made !== undefined;
    const there = `generation ${made.generation} of ${id} is still there`;
    throw new EngineError('unavailable', there);
  }
}

/** An unclassified error may be temporary. */
async function attempt<T>(verb: () => Promise<T>): Promise<T> {
  try {
    return await verb();
  } catch (error) {
    if (error instanceof EngineError) throw error;
    const message = error instanceof Error ? error.message : String(error);
    throw new EngineError('unavailable', message, { cause: error });
  }
}

/** Undefined if the Pod does not exist or has not started. @throws KubernetesError, EngineError */
async function openLog(
  client: ApiClient,
  name: string,
  lines: number,
): Promise<AsyncIterable<Buffer> | undefined> {
  const path = `${await client.pathOf('pods', name)}/log`;
  const query = { container: CONTAINER, tailLines: `${lines}` };
  const signal = AbortSignal.timeout(LOG_LIMIT_MS);
  try {
    return (await client.open({ method: 'GET', path, query, accept: '*/*', signal })).body;
  } catch (error) {
    if (error instanceof KubernetesError && [400, 404].includes(error.status)) return undefined;
    throw error;
  }
}

/** The list after it finds what a watch that hangs has not told, seconds. */
const WATCH_S = 60;
/** Beyond that, a watch that does not end by itself is given up, ms. */
const SLACK_MS = 10_000;

const podLabels = z.object({
  metadata: z.object({ labels: z.record(z.string(), z.string()).optional() }).optional(),
});

const change = z.object({ type: z.string(), object: podLabels });

interface PodWatch {
  client: ApiClient;
  /** Label selector of the platform's Pods. */
  labelSelector: string;
}

/** @throws Error if the API server does not answer, or ends the watch with an error */
export async function watchPods(watch: PodWatch, stream: ChangeStream): Promise<void> {
  const { client, labelSelector } = watch;
  const { signal } = stream;
  const path = await client.pathOf('pods');
  const answer = await client.ask({ method: 'GET', path, query: { labelSelector }, signal });
  const { items, metadata } = podList.parse(answer);
  for (const item of items) reportPod(item, stream);
  const limit = AbortSignal.timeout(WATCH_S * 1_000 + SLACK_MS);
  const { body } = await client.open({
    method: 'GET',
    path,
    signal: AbortSignal.any([signal, limit]),
    query: {
      labelSelector,
      watch: 'true',
      allowWatchBookmarks: 'true',
      timeoutSeconds: `${WATCH_S}`,
      ...(metadata?.resourceVersion !== undefined && {
        resourceVersion: metadata.resourceVersion,
      }),
    },
  });
  stream.opened();
  for await (const document of readDocuments(body)) {
    const { object, type } = change.parse(document);
    // 410 Gone: the changes since the list are not kept any more.
    if (type === 'ERROR') {
      throw new Error(`the watch ended: ${JSON.stringify(document).slice(0, 500)}`);
    }
    if (type !== 'BOOKMARK') reportPod(object, stream);
  }
}

function reportPod({ metadata }: z.infer<typeof podLabels>, stream: ChangeStream): void {
  const id = metadata?.labels?.[POD_LABEL];
  if (id !== undefined) stream.changed(id);
}

const eventList = z.object({
  items: z.array(
    z.object({
      type: z.string().optional(),
      reason: z.string().optional(),
      message: boundedText.optional(),
      lastTimestamp: z.string().nullish(),
      eventTime: z.string().nullish(),
      metadata: z.object({ creationTimestamp: z.string().nullish() }).optional(),
    }),
  ),
});
type PodEvent = z.infer<typeof eventList>['items'][number];

/**
 * Why a Pod does not start, by its Events, for what its own status does not tell; undefined without a warning.
 * @throws KubernetesError, EngineError
 */
export async function findWarning(
  client: ApiClient,
  uid: string,
): Promise<ContainerWait | undefined> {
  const query = { fieldSelector: `involvedObject.uid=${uid}`, limit: '100' };
  const answer = await client.ask({ method: 'GET', path: await client.pathOf('events'), query });
  return readWarning(eventList.parse(answer).items);
}

export function readWarning(events: readonly PodEvent[]): ContainerWait | undefined {
  const warnings = events.filter(({ type }) => type === 'Warning');
  const [last] = warnings.sort((a, b) => timeOf(b) - timeOf(a));
  if (!last) return undefined;
  const { message = '', reason = '' } = last;
  if (reason === 'FailedScheduling') {
    const detail = `the cluster has no capacity for it: ${message}`;
    return { cause: 'capacity', message: detail, isFinal: false };
  }
  return { cause: 'other', message: `it does not start: ${message || reason}`, isFinal: false };
}

function timeOf({ eventTime, lastTimestamp, metadata }: PodEvent): number {
  return Date.parse(lastTimestamp ?? eventTime ?? metadata?.creationTimestamp ?? '') || 0;
}
