// Starts, ends and removes the Pods of containers, and keeps their records. Every step may be repeated after a crash at
// any point: it looks at the objects first.

import { z } from 'zod';
import { type Clock, sleep } from '../../base/clock.ts';
import { EngineError } from '../engine.ts';
import { type ApiClient, type ApiRequest, KubernetesError } from './api-client.ts';
import { MANIFEST_KEY } from './manifests.ts';
import {
  END_ANNOTATION,
  PLATFORM_LABEL,
  POD_LABEL,
  type RecordedEnd,
  writeSelector,
} from './names.ts';
import {
  findStart,
  hasEnded,
  hasStarted,
  isLost,
  type KubeObject,
  type KubePod,
  objectAnswer,
  objectList,
  podAnswer,
  podList,
} from './pod-view.ts';

/** Only names, labels and annotations: the list carries no environment. */
const METADATA_ONLY =
  'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json';
const CONFLICT = 409;
/** Objects may stay for a moment after a request to remove them. */
const SETTLE_MS = 15_000;
const FIRST_LOOK_MS = 20;
const MAX_LOOK_MS = 500;
const AT_ONCE_S = 1;
/** Forgets the Pod while its processes may still run: only for one whose node nobody can ask. */
const FORGET_S = 0;
/** The kubelet looks for deadlines once a second. */
const DEADLINE_SLACK_MS = 1_000;
const KILLED = 137;
const TERMINATED = 143;

const secretAnswer = objectAnswer.extend({ data: z.record(z.string(), z.string()).optional() });
const manifest = z.looseObject({ metadata: z.looseObject({}) });

type Metadata = KubeObject['metadata'];

export interface PodRunsOptions {
  client: ApiClient;
  platform: string;
  clock: Clock;
}

export class PodRuns {
  readonly #options: PodRunsOptions;

  constructor(options: PodRunsOptions) {
    this.#options = options;
  }

  /** Stores a container's record; an existing one stays. @throws KubernetesError, EngineError */
  async record(secret: object): Promise<void> {
    const { client } = this.#options;
    try {
      await client.ask({ method: 'POST', path: await client.pathOf('secrets'), body: secret });
    } catch (error) {
      if (!isConflict(error)) throw error;
    }
  }

  /** Records of the container, or of all. */
  async listRecords(id?: string): Promise<KubeObject[]> {
    const answer = await this.#list('secrets', id, METADATA_ONLY);
    return objectList.parse(answer).items;
  }

  async listPods(id?: string): Promise<KubePod[]> {
    return podList.parse(await this.#list('pods', id)).items;
  }

  /** Does nothing if its Pod runs or starts. @throws KubernetesError, EngineError */
  async start({ metadata }: KubeObject): Promise<void> {
    const { name } = metadata;
    const pod = await this.#find(name);
    if (pod && pod.metadata.deletionTimestamp === undefined && !hasEnded(pod)) return;
    if (pod) {
      await this.#delete(pod);
      await this.#until(name, (left) => left === undefined, 'is still ending');
    }
    const { client } = this.#options;
    const path = await client.pathOf('secrets', name);
    const secret = secretAnswer.parse(await client.ask({ method: 'GET', path }));
    if (secret.metadata.annotations?.[END_ANNOTATION] !== undefined) {
      await this.#noteEnd(name, null);
    }
    const text = Buffer.from(secret.data?.[MANIFEST_KEY] ?? '', 'base64').toString();
    const body = manifest.parse(JSON.parse(text));
    const owner = { apiVersion: 'v1', kind: 'Secret', name, uid: secret.metadata.uid };
    const owned = { ...body, metadata: { ...body.metadata, ownerReferences: [owner] } };
    try {
      await client.ask({ method: 'POST', path: await client.pathOf('pods'), body: owned });
    } catch (error) {
      if (!isConflict(error)) throw error;
    }
  }

  /**
   * A deadline ends the Pod and leaves exit code and log to read; Kubernetes has no other way. If the grace period is
   * over before the Pod's own, the Pod is deleted. @throws KubernetesError, EngineError
   */
  async stop({ metadata }: KubeObject, graceMs: number): Promise<void> {
    const { name } = metadata;
    const { client, clock } = this.#options;
    const pod = await this.#find(name);
    if (!pod || (hasEnded(pod) && pod.metadata.deletionTimestamp === undefined)) return;
    if (pod.metadata.deletionTimestamp === undefined && hasStarted(pod)) {
      const { uid } = pod.metadata;
      const body = { metadata: { uid }, spec: { activeDeadlineSeconds: 1 } };
      await this.#unlessReplaced({
        method: 'PATCH',
        path: await client.pathOf('pods', name),
        body,
      });
      const until = clock.now() + graceMs + DEADLINE_SLACK_MS;
      if (await this.#hasStopped(name, until)) return;
    }
    const left = await this.#find(name);
    if (!left || hasEnded(left)) return;
    const exitCode = hasStarted(left) ? KILLED : TERMINATED;
    // A Pod that waited for a node has not run: its time is not billed.
    const startedAt = hasStarted(left) ? findStart(left) : null;
    const endedAt = Math.max(startedAt ?? 0, clock.now());
    await this.#noteEnd(name, { uid: left.metadata.uid, exitCode, startedAt, endedAt });
    await this.#delete(left);
    await this.#until(name, (seen) => seen === undefined, 'does not end');
  }

  /** Of every generation. @throws KubernetesError, EngineError if something is still there */
  async remove(id: string): Promise<void> {
    const { clock } = this.#options;
    for (const pod of await this.listPods(id)) await this.#delete(pod);
    for (const { metadata } of await this.listRecords(id)) {
      await this.#deleteNow('secrets', metadata, {});
    }
    const giveUpAt = clock.now() + SETTLE_MS;
    for (let lookMs = FIRST_LOOK_MS; ; lookMs = Math.min(MAX_LOOK_MS, lookMs * 2)) {
      const [records, pods] = await Promise.all([this.listRecords(id), this.listPods(id)]);
      if (records.length + pods.length === 0) return;
      if (clock.now() >= giveUpAt) {
        throw new EngineError('unavailable', `the Pod of ${id} is still ending`);
      }
      await sleep(clock, lookMs);
    }
  }

  async #hasStopped(name: string, until: number): Promise<boolean> {
    const { clock } = this.#options;
    for (let lookMs = FIRST_LOOK_MS; ; lookMs = Math.min(MAX_LOOK_MS, lookMs * 2)) {
      const pod = await this.#find(name);
      if (!pod || hasEnded(pod)) return true;
      if (clock.now() >= until) return false;
      await sleep(clock, Math.min(lookMs, Math.max(1, until - clock.now())));
    }
  }

  async #until(
    name: string,
    isWanted: (pod: KubePod | undefined) => boolean,
    problem: string,
  ): Promise<void> {
    const { clock } = this.#options;
    const giveUpAt = clock.now() + SETTLE_MS;
    for (let lookMs = FIRST_LOOK_MS; ; lookMs = Math.min(MAX_LOOK_MS, lookMs * 2)) {
      if (isWanted(await this.#find(name))) return;
      if (clock.now() >= giveUpAt)
        throw new EngineError('unavailable', `the Pod ${name} ${problem}`);
      await sleep(clock, lookMs);
    }
  }

  #delete(pod: KubePod): Promise<void> {
    const { client, clock } = this.#options;
    const gracePeriodSeconds = isLost(pod, client.now() ?? clock.now()) ? FORGET_S : AT_ONCE_S;
    const options = { gracePeriodSeconds, propagationPolicy: 'Background' };
    return this.#deleteNow('pods', pod.metadata, options);
  }

  /** Never another object of the same name. */
  async #deleteNow(kind: 'pods' | 'secrets', { name, uid }: Metadata, options: object) {
    const body = { ...options, preconditions: { uid } };
    const path = await this.#options.client.pathOf(kind, name);
    await this.#unlessReplaced({ method: 'DELETE', path, body });
  }

  /** A change that names the object's UID. Does nothing if another object has the name by now, or none. */
  async #unlessReplaced(change: ApiRequest): Promise<void> {
    try {
      await this.#options.client.find(change);
    } catch (error) {
      if (!isConflict(error)) throw error;
    }
  }

  async #noteEnd(name: string, end: RecordedEnd | null): Promise<void> {
    const { client } = this.#options;
    const value = end && JSON.stringify(end);
    const body = { metadata: { annotations: { [END_ANNOTATION]: value } } };
    await client.find({ method: 'PATCH', path: await client.pathOf('secrets', name), body });
  }

  async #find(name: string): Promise<KubePod | undefined> {
    const { client } = this.#options;
    const found = await client.find({ method: 'GET', path: await client.pathOf('pods', name) });
    return found === undefined ? undefined : podAnswer.parse(found);
  }

  async #list(kind: 'pods' | 'secrets', id?: string, accept?: string): Promise<unknown> {
    const { client, platform } = this.#options;
    const labels = { [PLATFORM_LABEL]: platform, ...(id !== undefined && { [POD_LABEL]: id }) };
    return client.ask({
      method: 'GET',
      path: await client.pathOf(kind),
      query: { labelSelector: writeSelector(labels) },
      ...(accept !== undefined && { accept }),
    });
  }
}

function isConflict(error: unknown): boolean {
  return error instanceof KubernetesError && error.status === CONFLICT;
}
