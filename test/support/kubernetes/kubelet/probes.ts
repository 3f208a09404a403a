// Probes a container as the kubelet does: first its start, then whether it is ready and alive.
import { setTimeout as sleep } from 'node:timers/promises';
import type { Probe } from './pod-schema.ts';

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
