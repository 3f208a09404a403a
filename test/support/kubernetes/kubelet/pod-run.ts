// The life of one pod on its node: image, variables, volumes, process, status, end and removal.
import { execFile } from 'node:child_process';
import { mkdir, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { formatTime, ignoreGone, type KubeClient, reportEvent } from '../client.ts';
import { type ContainerEnd, ContainerProcess } from './container-process.ts';
import { type Images, type Mount, prepareVolumes, readSecret, readVariables } from './pod-needs.ts';
import { HOST_RUNTIME, linkMounts, type PodPlace, type PodRuntime } from './pod-runtime.ts';
import { type Pod, type PodContainer, type Probe, podPath } from './pod-schema.ts';
import { parseQuantity } from './scheduler.ts';

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
  /** Default: pods share network and files of this machine. */
  runtime?: PodRuntime | undefined;
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
  #place: PodPlace | undefined;
  #isReady = false;
  #restarts = 0;
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
    if (graceSeconds > 0) void this.#terminate();
    this.#killTimer = setTimeout(() => this.#process?.kill(), graceSeconds * 1_000);
  }

  /** The container prepares itself first, if the pod says how. */
  async #terminate(): Promise<void> {
    const [program, ...args] = this.#pod.spec.containers[0].lifecycle.preStop?.exec.command ?? [];
    if (program !== undefined) {
      await new Promise<void>((resolve) => execFile(program, args, () => resolve()));
    }
    this.#process?.terminate();
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
    let end = await this.#runContainer();
    while (this.#pod.spec.restartPolicy === 'Always' && !this.#stopped.signal.aborted) {
      this.#restarts++;
      await sleep(RETRY_MS);
      end = await this.#runContainer();
    }
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
    const mounts = await this.#mount(container);
    if (!mounts) return undefined;
    const { runtime = HOST_RUNTIME } = this.#options;
    this.#place ??= await runtime.open(this.#pod);
    if (runtime === HOST_RUNTIME && this.#restarts === 0) {
      await linkMounts(join(this.#folder, 'disk'), mounts);
    }
    if (this.#stopped.signal.aborted) return undefined;
    const { command, args, image, resources, securityContext } = container;
    const { images } = this.#options;
    const entryPoint = command.length > 0 ? command : images.entryPoint(image);
    const { memory } = resources.limits;
    const { gpus } = this.#options;
    const expanded = [...entryPoint, ...args].map((word) => expand(word, env));
    const isReadOnly = securityContext.readOnlyRootFilesystem;
    this.#process = new ContainerProcess({
      id: this.#restarts === 0 ? this.#pod.uid : `${this.#pod.uid}-${this.#restarts}`,
      command: this.#place.enter(expanded, { mounts, isReadOnly }),
      env: {
        PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
        HOME: '/root',
        HOSTNAME: this.#pod.name,
        ...(gpus.length > 0 && { NVIDIA_VISIBLE_DEVICES: gpus.join(',') }),
        ...this.#place.env,
        ...images.env(image),
        ...env,
      },
      folder: join(this.#folder, 'disk'),
      logFile: this.logFile,
      memoryLimit: memory === undefined ? undefined : parseQuantity(memory),
    });
    const startedAt = formatTime(Date.now());
    this.#state = { running: { startedAt } };
    const over = new AbortController();
    await this.#tell('Running');
    this.#probe(container, this.#process, AbortSignal.any([over.signal, this.#stopped.signal]));
    const end = await this.#process.ended;
    over.abort();
    this.#isReady = false;
    const { exitCode, message, reason } = end;
    const finishedAt = formatTime(Date.now());
    const terminated = { exitCode, reason, startedAt, finishedAt };
    this.#state = { terminated: { ...terminated, ...(message && { message }) } };
    return end;
  }

  #probe(container: PodContainer, process: ContainerProcess, signal: AbortSignal): void {
    const { livenessProbe: liveness, ports, readinessProbe: readiness } = container;
    const onReady = (isReady: boolean) => {
      this.#isReady = isReady;
      void this.#tell('Running');
    };
    const { startupProbe: startup } = container;
    // Without probes a running container is ready.
    if (!startup && !readiness && !liveness) return;
    void runProbes({
      ...{ startup, readiness, liveness, signal, onReady },
      ip: this.#place?.ip ?? '',
      portOf: (port) => ports.find(({ name }) => name === port)?.containerPort ?? Number(port),
      onDead: (why) => {
        void this.#report('Unhealthy', why);
        process.kill();
      },
    });
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

  /** Repeats until each volume is there. Undefined if the pod was stopped. */
  async #mount(container: PodContainer): Promise<Mount[] | undefined> {
    const { client, root } = this.#options;
    const terms = { client, root, folder: this.#folder, pod: this.#pod };
    while (!this.#stopped.signal.aborted) {
      const found = await prepareVolumes(terms, container);
      if (typeof found !== 'string') return found;
      await this.#report('FailedMount', found);
      await sleep(RETRY_MS);
    }
    return undefined;
  }

  async #tellEnd({ exitCode }: ContainerEnd): Promise<void> {
    await this.#tell(exitCode === 0 && !this.#stopReason ? 'Succeeded' : 'Failed');
  }

  async #tell(phase: string): Promise<void> {
    if (this.#isLost) return;
    const [{ image, name }] = this.#pod.spec.containers;
    const [{ livenessProbe, readinessProbe, startupProbe }] = this.#pod.spec.containers;
    const hasProbes = Boolean(readinessProbe ?? startupProbe ?? livenessProbe);
    const isReady = phase === 'Running' && (this.#isReady || !hasProbes);
    const condition = (type: string, status: boolean) => ({
      type,
      status: status ? 'True' : 'False',
    });
    const status = {
      phase,
      startTime: formatTime(this.#startTime),
      hostIP: '127.0.0.1',
      ...(this.#place && { podIP: this.#place.ip, podIPs: [{ ip: this.#place.ip }] }),
      conditions: [
        condition('Initialized', true),
        condition('Ready', isReady),
        condition('ContainersReady', isReady),
        condition('PodScheduled', true),
      ],
      containerStatuses: [
        {
          name,
          image,
          imageID: '',
          ready: isReady,
          restartCount: this.#restarts,
          state: this.#state,
        },
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
    this.#place?.close();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/** As the kubelet does: `$$` is one dollar, and `$(NAME)` the variable's value, if there is one. */
function expand(word: string, env: Readonly<Record<string, string>>): string {
  return word.replaceAll(/\$\$|\$\(([A-Za-z_][\w.-]*)\)/g, (found, name?: string) =>
    name === undefined ? '$' : (env[name] ?? found),
  );
}

export interface ProbesOptions {
  ip: string;
  startup: Probe | undefined;
  readiness: Probe | undefined;
  liveness: Probe | undefined;
  portOf: (name: string | number) => number;
  onReady: (isReady: boolean) => void;
  /** The container has to be restarted. */
  onDead: (why: string) => void;
  signal: AbortSignal;
}

export async function runProbes(options: ProbesOptions): Promise<void> {
  const { liveness, readiness, signal, startup } = options;
  if (startup && !(await untilStarted(startup, options))) return;
  if (signal.aborted) return;
  if (!readiness) options.onReady(true);
  await Promise.all([
    readiness && follow(readiness, options, (isGood) => options.onReady(isGood)),
    liveness &&
      follow(liveness, options, (isGood) => {
        if (!isGood) options.onDead('its liveness probe fails');
      }),
  ]);
}

async function untilStarted(probe: Probe, options: ProbesOptions): Promise<boolean> {
  for (let failures = 0; !options.signal.aborted; ) {
    if (await isGood(probe, options)) return true;
    if (++failures >= probe.failureThreshold) {
      options.onDead('its startup probe fails');
      return false;
    }
    await pause(probe, options);
  }
  return false;
}

/** Tells each change. */
async function follow(
  probe: Probe,
  options: ProbesOptions,
  tell: (isGood: boolean) => void,
): Promise<void> {
  let told: boolean | undefined;
  for (let failures = 0; !options.signal.aborted; await pause(probe, options)) {
    const good = await isGood(probe, options);
    failures = good ? 0 : failures + 1;
    if (!good && failures < probe.failureThreshold) continue;
    if (good !== told && !options.signal.aborted) tell(good);
    told = good;
  }
}

async function pause({ periodSeconds }: Probe, { signal }: ProbesOptions): Promise<void> {
  await sleep(periodSeconds * 1_000, undefined, { signal, ref: false }).catch(() => {});
}

async function isGood(
  { httpGet: { path, port }, timeoutSeconds }: Probe,
  { ip, portOf, signal }: ProbesOptions,
): Promise<boolean> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(timeoutSeconds * 1_000)]);
  try {
    const response = await fetch(`http://${ip}:${portOf(port)}${path}`, { signal: limit });
    await response.arrayBuffer();
    return response.ok;
  } catch {
    return false;
  }
}
