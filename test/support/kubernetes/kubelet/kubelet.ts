// A kubelet and scheduler for tests, on any API server: places pods on pretended nodes and runs them
// as processes of this machine.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Certificate } from '../../certificates.ts';
import {
  ignoreGone,
  type KubeClient,
  KubeError,
  type KubeObject,
  reportEvent,
  watchAll,
} from '../client.ts';
import { KubeletServer } from './kubelet-server.ts';
import { Images } from './pod-needs.ts';
import { PodRun } from './pod-run.ts';
import type { PodRuntime } from './pod-runtime.ts';
import { type Pod, parsePod, podPath } from './pod-schema.ts';
import { chooseNode, countRequests, GPU, type NodeSpec } from './scheduler.ts';

const RETRY_MS = 50;

export interface KubeletOptions {
  /** Default: one without GPUs. */
  nodes?: readonly NodeSpec[];
  /** Length of a second of a pod's deadline, ms. Default: 1,000. A stop waits for one. */
  secondMs?: number;
  /** Default: pods share network and files of this machine. */
  runtime?: PodRuntime;
}

export class Kubelet {
  readonly images = new Images();
  readonly #client: KubeClient;
  readonly #nodes: readonly NodeSpec[];
  readonly #secondMs: number;
  readonly #runtime: PodRuntime | undefined;
  readonly #stopped = new AbortController();
  readonly #runs = new Map<string, PodRun>();
  /** Pods without a node, by UID, and what was said of each. */
  readonly #waiting = new Map<string, { pod: Pod; said: string }>();
  /** Nodes of pods that have been bound, and the UUIDs of their GPUs. */
  readonly #placed = new Map<string, { pod: Pod; node: string; gpus: string[] }>();
  /** Of pods that the kubelet cannot run, by UID. */
  readonly #failures = new Map<string, Error>();
  #root = '';
  #server: KubeletServer | undefined;
  #watching: Promise<void> | undefined;
  #scheduling = Promise.resolve();

  private constructor(client: KubeClient, options: KubeletOptions) {
    const { nodes = [{ name: 'cpu-node' }], secondMs = 1_000 } = options;
    this.#client = client;
    this.#nodes = nodes;
    this.#secondMs = secondMs;
    this.#runtime = options.runtime;
  }

  static async start(
    client: KubeClient,
    certificate: Certificate,
    options: KubeletOptions = {},
  ): Promise<Kubelet> {
    const kubelet = new Kubelet(client, options);
    kubelet.#root = await mkdtemp(join(tmpdir(), 'millrace-kubelet-'));
    const find = (namespace: string, name: string) => kubelet.#findRun(namespace, name);
    kubelet.#server = await KubeletServer.start(certificate, find);
    for (const node of kubelet.#nodes) await kubelet.#register(node, kubelet.#server.port);
    kubelet.#watching = watchAll(client, '/api/v1/pods', kubelet.#stopped.signal, (pods) =>
      kubelet.#follow(pods),
    );
    return kubelet;
  }

  /** Port of its HTTPS server. */
  get port(): number {
    return this.#server?.port ?? 0;
  }

  /** Ends a pod as a node under pressure does: phase `Failed`, reason `Evicted`. */
  evict(namespace: string, name: string): void {
    this.#findRun(namespace, name)?.evict();
  }

  /** The pod's node does not answer any more: nobody ends the pod, or says what becomes of it. */
  lose(namespace: string, name: string): void {
    this.#findRun(namespace, name)?.lose();
  }

  /** Announces the end of a pod as a drained or preempted node does, then deletes it with its grace. */
  async disrupt(namespace: string, name: string): Promise<void> {
    const path = podPath({ namespace, name });
    const { status = {} } = await this.#client.get(path);
    const before = Array.isArray(status['conditions']) ? status['conditions'] : [];
    const condition = { type: 'DisruptionTarget', status: 'True', reason: 'EvictionByEvictionAPI' };
    await this.#client.patch(`${path}/status`, { status: { conditions: [...before, condition] } });
    await this.#client.remove(path);
  }

  /** Kills all pods. Their objects stay. @throws Error if it could not run a pod */
  async close(): Promise<void> {
    this.#stopped.abort();
    for (const run of this.#runs.values()) run.kill();
    await Promise.allSettled([...this.#runs.values()].map((run) => run.ended));
    await this.#watching;
    await this.#server?.close();
    await rm(this.#root, { recursive: true, force: true });
    const [failure] = this.#failures.values();
    if (failure) throw failure;
  }

  #findRun(namespace: string, name: string): PodRun | undefined {
    return [...this.#runs.values()].findLast(
      ({ pod }) => pod.namespace === namespace && pod.name === name,
    );
  }

  async #register(node: NodeSpec, port: number): Promise<void> {
    const { capacity, gpus = [], labels, name } = node;
    const object = { metadata: { name, labels: { ...labels, 'kubernetes.io/hostname': name } } };
    const amounts = { cpu: '64', memory: '256Gi', pods: '1000', ...capacity };
    const allocatable = { ...amounts, ...(gpus.length > 0 && { [GPU]: String(gpus.length) }) };
    const status = {
      capacity: allocatable,
      allocatable,
      conditions: [{ type: 'Ready', status: 'True' }],
      addresses: [{ type: 'InternalIP', address: '127.0.0.1' }],
      daemonEndpoints: { kubeletEndpoint: { Port: port } },
    };
    await this.#client.create('/api/v1/nodes', object).catch(ignoreGone);
    await this.#client.patch(`/api/v1/nodes/${name}/status`, { status });
  }

  /** Gets all pods after each change of one of them. */
  #follow(objects: ReadonlyMap<string, KubeObject>): void {
    for (const [uid, run] of this.#runs) {
      if (objects.has(uid)) continue;
      run.kill();
      run.ended.finally(() => this.#runs.delete(uid)).catch(() => {});
    }
    for (const uid of [...this.#placed.keys()]) if (!objects.has(uid)) this.#placed.delete(uid);
    for (const uid of [...this.#waiting.keys()]) if (!objects.has(uid)) this.#waiting.delete(uid);
    for (const [uid, object] of objects) {
      if (!this.#failures.has(uid)) this.#attendObject(uid, object);
    }
    this.#scheduling = this.#scheduling.then(() => this.#schedule());
  }

  #attendObject(uid: string, object: KubeObject): void {
    try {
      this.#attend(uid, parsePod(object));
    } catch (error) {
      this.#failures.set(uid, new Error(`${object.metadata.name} cannot run`, { cause: error }));
    }
  }

  #attend(uid: string, pod: Pod): void {
    const { nodeName } = pod.spec;
    const run = this.#runs.get(uid);
    if (run) run.update(pod);
    else if (pod.phase === 'Succeeded' || pod.phase === 'Failed') this.#placed.delete(uid);
    else if (nodeName === undefined) {
      const said = this.#waiting.get(uid)?.said ?? '';
      if (pod.deletionSeconds === undefined) this.#waiting.set(uid, { pod, said });
    } else if (this.#nodes.some(({ name }) => name === nodeName)) {
      this.#start(uid, pod, nodeName);
    }
  }

  #start(uid: string, pod: Pod, node: string): void {
    this.#waiting.delete(uid);
    const gpus = this.#takeGpus(pod, node);
    this.#placed.set(uid, { pod, node, gpus });
    const run = new PodRun(pod, {
      client: this.#client,
      images: this.images,
      root: this.#root,
      gpus,
      secondMs: this.#secondMs,
      runtime: this.#runtime,
    });
    this.#runs.set(uid, run);
    run.ended
      .catch((error: unknown) => {
        const isClosing = this.#stopped.signal.aborted;
        if (!isClosing) this.#failures.set(uid, new Error('a pod failed', { cause: error }));
      })
      .finally(() => {
        this.#placed.delete(uid);
        this.#scheduling = this.#scheduling.then(() => this.#schedule());
      });
  }

  #takeGpus(pod: Pod, node: string): string[] {
    const all = this.#nodes.find(({ name }) => name === node)?.gpus ?? [];
    const taken = [...this.#placed.values()].flatMap(({ gpus }) => gpus);
    return all.filter((uuid) => !taken.includes(uuid)).slice(0, countRequests(pod)[GPU] ?? 0);
  }

  async #schedule(): Promise<void> {
    for (const [uid, { pod, said }] of this.#waiting) {
      if (this.#placed.has(uid) || this.#stopped.signal.aborted) continue;
      const claim = await this.#findMissingClaim(pod);
      const choice =
        claim === undefined
          ? chooseNode(pod, this.#nodes, [...this.#placed.values()])
          : { message: `persistentvolumeclaim "${claim}" not found` };
      if ('node' in choice) await this.#bind(uid, pod, choice.node);
      else {
        if (choice.message !== said) await this.#sayUnschedulable(pod, choice.message);
        this.#waiting.set(uid, { pod, said: choice.message });
        if (claim !== undefined) this.#scheduleSoon();
      }
    }
  }

  /** A claim is created later. */
  #scheduleSoon(): void {
    sleep(RETRY_MS, undefined, { signal: this.#stopped.signal, ref: false }).then(
      () => {
        this.#scheduling = this.#scheduling.then(() => this.#schedule());
      },
      () => {},
    );
  }

  async #findMissingClaim({ namespace, spec }: Pod): Promise<string | undefined> {
    for (const { persistentVolumeClaim: claim } of spec.volumes) {
      if (claim === undefined) continue;
      const path = `/api/v1/namespaces/${namespace}/persistentvolumeclaims/${claim.claimName}`;
      if (!(await this.#client.find(path))) return claim.claimName;
    }
    return undefined;
  }

  async #bind(uid: string, pod: Pod, node: string): Promise<void> {
    this.#waiting.delete(uid);
    this.#placed.set(uid, { pod, node, gpus: [] });
    const { name, namespace } = pod;
    const binding = {
      apiVersion: 'v1',
      kind: 'Binding',
      metadata: { name, namespace, uid },
      target: { apiVersion: 'v1', kind: 'Node', name: node },
    };
    await this.#client.post(`${podPath(pod)}/binding`, binding).catch((error: unknown) => {
      this.#placed.delete(uid);
      if (!(error instanceof KubeError)) throw error;
    });
  }

  async #sayUnschedulable(pod: Pod, message: string): Promise<void> {
    const { name, namespace, uid } = pod;
    const condition = { type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message };
    const patch = { metadata: { uid }, status: { conditions: [condition] } };
    await this.#client.patch(`${podPath(pod)}/status`, patch).catch(ignoreGone);
    const event = { name, namespace, uid, reason: 'FailedScheduling', message };
    await reportEvent(this.#client, event);
  }
}
