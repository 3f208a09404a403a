// The life of one pod on its node: image, variables, volumes, process, status, end and removal.
import { mkdir, rm, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { KubeClient } from '../client.ts';
import { formatTime } from '../stand-in/object-store.ts';
import { parseQuantity } from '../stand-in/rules.ts';
import { type ContainerEnd, ContainerProcess } from './container-process.ts';
import { ignoreGone, reportEvent } from './events.ts';
import type { Images } from './images.ts';
import { findClaimFolder, readSecret, readVariables } from './pod-needs.ts';
import { type Pod, type PodContainer, podPath } from './pod-schema.ts';
import { PortRelays } from './port-relays.ts';

const RETRY_MS = 100;
const MAX_TIMER_MS = 2 ** 31 - 1;

export interface PodRunOptions {
  client: KubeClient;
  images: Images;
  /** Of the kubelet. */
  root: string;
  /** UUIDs. */
  gpus: readonly string[];
  /** Length of a second of a deadline, ms. */
  secondMs: number;
}

type ContainerState = Record<string, unknown>;

interface StopReason {
  phase: 'Failed';
  reason: string;
  message: string;
}

export class PodRun {
  /** Resolves when nothing of the pod runs any more and, if it was deleted, its object is gone. */
  readonly ended: Promise<void>;
  #pod: Pod;
  readonly #options: PodRunOptions;
  readonly #folder: string;
  readonly #startTime = Date.now();
  readonly #stopped = new AbortController();
  #process: ContainerProcess | undefined;
  #relays: PortRelays | undefined;
  #killTimer: NodeJS.Timeout | undefined;
  #killAt = Infinity;
  #deadline: NodeJS.Timeout | undefined;
  #stopReason: StopReason | undefined;
  #isOver = false;
  #isLost = false;
  #state: ContainerState = { waiting: { reason: 'ContainerCreating' } };

  constructor(pod: Pod, options: PodRunOptions) {
    this.#pod = pod;
    this.#options = options;
    this.#folder = join(options.root, 'pods', pod.uid);
    this.ended = this.#live();
    this.update(pod);
  }

  get pod(): Pod {
    return this.#pod;
  }

  get process(): ContainerProcess | undefined {
    return this.#process;
  }

  get hasStarted(): boolean {
    return this.#process !== undefined;
  }

  get logFile(): string {
    return join(this.#options.root, 'logs', this.#pod.uid);
  }

  /** The pod's object has changed. */
  update(pod: Pod): void {
    this.#pod = pod;
    if (this.#isLost) return;
    const { activeDeadlineSeconds, terminationGracePeriodSeconds } = pod.spec;
    if (pod.deletionSeconds !== undefined) this.#stop(pod.deletionSeconds);
    // It was deleted while its end was written.
    if (this.#isOver && pod.deletionSeconds !== undefined) this.#remove().catch(() => {});
    clearTimeout(this.#deadline);
    if (activeDeadlineSeconds === undefined || this.#stopped.signal.aborted) return;
    const end = this.#startTime + activeDeadlineSeconds * this.#options.secondMs;
    const waitMs = Math.max(0, end - Date.now());
    if (waitMs > MAX_TIMER_MS) return;
    this.#deadline = setTimeout(() => {
      const message = 'Pod was active on the node longer than the specified deadline';
      this.#stopReason = { phase: 'Failed', reason: 'DeadlineExceeded', message };
      this.#stop(terminationGracePeriodSeconds);
    }, waitMs);
  }

  /** It runs on, and nobody hears of it. */
  lose(): void {
    this.#isLost = true;
  }

  /** Ends it at once: its object is gone. */
  kill(): void {
    this.#stop(0);
  }

  /** Ends it as a node under pressure does; its object stays. */
  evict(): void {
    const message = 'The node was low on resource: memory.';
    this.#stopReason = { phase: 'Failed', reason: 'Evicted', message };
    this.#stop(0);
  }

  #stop(graceSeconds: number): void {
    this.#stopped.abort();
    const killAt = performance.now() + graceSeconds * 1_000;
    if (killAt >= this.#killAt) return;
    this.#killAt = killAt;
    clearTimeout(this.#killTimer);
    if (graceSeconds > 0) this.#process?.terminate();
    this.#killTimer = setTimeout(() => this.#process?.kill(), graceSeconds * 1_000);
  }

  async #live(): Promise<void> {
    try {
      await this.#run();
    } finally {
      await this.#cleanUp();
    }
  }

  async #run(): Promise<void> {
    await this.#tell('Pending');
    const end = await this.#runContainer();
    if (end) await this.#tellEnd(end);
    else if (this.#stopReason) await this.#tell('Failed');
    this.#isOver = true;
    if (this.#pod.deletionSeconds !== undefined) await this.#remove();
  }

  /** Undefined if it was stopped before its process started. */
  async #runContainer(): Promise<ContainerEnd | undefined> {
    const [container] = this.#pod.spec.containers;
    await mkdir(join(this.#folder, 'disk'), { recursive: true });
    await mkdir(dirname(this.logFile), { recursive: true });
    if (!(await this.#pull(container))) return undefined;
    const env = await this.#collect(container);
    if (!env) return undefined;
    await this.#mount(container);
    const ports = container.ports.filter(({ protocol }) => protocol === 'TCP');
    this.#relays = await PortRelays.open(ports.map(({ containerPort }) => containerPort));
    if (this.#stopped.signal.aborted) return undefined;
    const { command, args, resources } = container;
    const entryPoint =
      command.length > 0 ? command : this.#options.images.entryPoint(container.image);
    const { memory } = resources.limits;
    const { gpus } = this.#options;
    this.#process = new ContainerProcess({
      id: this.#pod.uid,
      command: [...entryPoint, ...args].map(expandDollars),
      env: {
        PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
        HOME: '/root',
        HOSTNAME: this.#pod.name,
        ...(gpus.length > 0 && { NVIDIA_VISIBLE_DEVICES: gpus.join(',') }),
        ...this.#relays.env,
        ...env,
      },
      folder: join(this.#folder, 'disk'),
      logFile: this.logFile,
      memoryLimit: memory === undefined ? undefined : parseQuantity(memory),
    });
    const startedAt = formatTime(Date.now());
    this.#state = { running: { startedAt } };
    await this.#tell('Running');
    const end = await this.#process.ended;
    const { exitCode, message, reason } = end;
    const finishedAt = formatTime(Date.now());
    const terminated = { exitCode, reason, startedAt, finishedAt };
    this.#state = { terminated: { ...terminated, ...(message && { message }) } };
    return end;
  }

  /** Repeats until the image is there. @returns false if the pod was stopped */
  async #pull({ image }: PodContainer): Promise<boolean> {
    const { client, images } = this.#options;
    for (let count = 0; !this.#stopped.signal.aborted; count++) {
      const secrets = await Promise.all(
        this.#pod.spec.imagePullSecrets.map(({ name }) => readSecret(client, this.#pod, name)),
      );
      const logins = secrets.flatMap((secret) => secret?.['.dockerconfigjson'] ?? []);
      const trouble = images.findTrouble(image, logins);
      if (trouble === undefined) return true;
      const isFirst = count === 0;
      const reason = isFirst ? 'ErrImagePull' : 'ImagePullBackOff';
      const message = isFirst ? trouble : `Back-off pulling image "${image}"`;
      await this.#wait(reason, message);
      const text = isFirst ? `Failed to pull image "${image}": ${trouble}` : message;
      if (count < 2) await this.#report(isFirst ? 'Failed' : 'BackOff', text);
      await sleep(RETRY_MS);
    }
    return false;
  }

  /** Repeats until each Secret and claim is there. Undefined if the pod was stopped. */
  async #collect(container: PodContainer): Promise<Record<string, string> | undefined> {
    while (!this.#stopped.signal.aborted) {
      const found = await readVariables(this.#options.client, this.#pod, container);
      if (typeof found !== 'string') return found;
      await this.#wait('CreateContainerConfigError', found);
      await sleep(RETRY_MS);
    }
    return undefined;
  }

  async #wait(reason: string, message: string): Promise<void> {
    this.#state = { waiting: { reason, message } };
    await this.#tell('Pending');
  }

  async #mount({ volumeMounts }: PodContainer): Promise<void> {
    const { volumes } = this.#pod.spec;
    for (const { mountPath, name } of volumeMounts) {
      const claim = volumes.find((volume) => volume.name === name)?.persistentVolumeClaim;
      const folder = claim
        ? await findClaimFolder({ ...this.#options, pod: this.#pod, claim: claim.claimName })
        : join(this.#folder, 'volumes', name);
      await mkdir(folder, { recursive: true });
      const path = join(this.#folder, 'disk', mountPath);
      await mkdir(dirname(path), { recursive: true });
      await symlink(folder, path);
    }
  }

  async #tellEnd({ exitCode }: ContainerEnd): Promise<void> {
    await this.#tell(exitCode === 0 && !this.#stopReason ? 'Succeeded' : 'Failed');
  }

  async #tell(phase: string): Promise<void> {
    if (this.#isLost) return;
    const [{ image, name }] = this.#pod.spec.containers;
    const isReady = phase === 'Running';
    const condition = (type: string, status: boolean) => ({
      type,
      status: status ? 'True' : 'False',
    });
    const status = {
      phase,
      startTime: formatTime(this.#startTime),
      hostIP: '127.0.0.1',
      ...(this.#relays && { podIP: this.#relays.ip, podIPs: [{ ip: this.#relays.ip }] }),
      conditions: [
        condition('Initialized', true),
        condition('Ready', isReady),
        condition('ContainersReady', isReady),
        condition('PodScheduled', true),
      ],
      containerStatuses: [
        { name, image, imageID: '', ready: isReady, restartCount: 0, state: this.#state },
      ],
      ...this.#stopReason,
    };
    // The UID is a precondition.
    const patch = { metadata: { uid: this.#pod.uid }, status };
    await this.#options.client.patch(`${podPath(this.#pod)}/status`, patch).catch(ignoreGone);
  }

  async #report(reason: string, message: string): Promise<void> {
    const { name, namespace, uid } = this.#pod;
    await reportEvent(this.#options.client, { name, namespace, uid, reason, message });
  }

  async #remove(): Promise<void> {
    const options = { gracePeriodSeconds: 0, preconditions: { uid: this.#pod.uid } };
    await this.#options.client.remove(podPath(this.#pod), options).catch(ignoreGone);
  }

  async #cleanUp(): Promise<void> {
    clearTimeout(this.#killTimer);
    clearTimeout(this.#deadline);
    this.#relays?.close();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/** As the kubelet does with `$$`; references to variables are not among what Millrace writes. */
function expandDollars(word: string): string {
  return word.replaceAll('$$', '$');
}
