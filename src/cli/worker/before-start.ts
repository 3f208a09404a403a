// What came before a worker process, for the timeline of its start: the platform tells when the pod was decided on and when
// it had its place, the supervisor tells when it began itself.
import type { BeforeStart } from '../../worker/starts.ts';
import { readVariable } from '../config.ts';

/** From the platform, for the first container of a pod: when it was decided on, and when it had its GPUs, both Unix ms. */
const POD_TIMES_VARIABLE = 'MILLRACE_POD_TIMES';
/** From a supervisor, for the first process of a device set: JSON. */
export const BEFORE_VARIABLE = 'MILLRACE_BEFORE_START';

/** Of the first worker processes. `installMs`: how long this process has installed a version. */
export function measureBefore(installMs: number): BeforeStart {
  const { timeOrigin } = performance;
  // As if the process had begun later.
  const beganAt = timeOrigin + installMs;
  const [decidedAt, placedAt] = (readVariable(POD_TIMES_VARIABLE) ?? '').split(',').map(Number);
  if (!decidedAt || !placedAt) return { beganAt, ...(installMs > 0 && { installMs }) };
  const queueMs = placedAt - decidedAt;
  return { beganAt, queueMs, installMs: timeOrigin - placedAt + installMs };
}

/** What the supervisor has told; undefined: nothing, because this process replaces another one. */
export function readBefore(): BeforeStart | undefined {
  const given = readVariable(BEFORE_VARIABLE);
  // The supervisor wrote this JSON.
  return given === undefined ? undefined : (JSON.parse(given) as BeforeStart);
}
