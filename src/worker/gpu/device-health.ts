// Decides whether a device may get jobs, from one reading after the other. Pure: monitor.ts reads,
// the supervisor acts on a quarantine.
import { type BackoffOptions, backoffMs } from '../../base/backoff.ts';

/** Result of one reading of one device. `undefined`: not reported. */
export type DeviceReading =
  | {
      kind: 'read';
      temperatureC: number | undefined;
      slowdownC: number | undefined;
      eccVolatile: number | undefined;
      eccAggregate: number | undefined;
      isRetirementPending: boolean;
      isRemapFailed: boolean;
      recoveryAction: string | undefined;
    }
  /** The driver has lost the device, or no longer lists it. */
  | { kind: 'lost'; reason: string }
  /** nvidia-smi gave no report: nothing is known of any device. */
  | { kind: 'unread'; reason: string }
  /** Like `unread`, because the program is being updated or does not match the driver. */
  | { kind: 'unreadable'; reason: string }
  /** The state of this device is unknown, without a fault of the device. */
  | { kind: 'skipped' };

export type HealthState =
  /** Takes jobs. */
  | { name: 'healthy' }
  /** Takes jobs, but needs attention. */
  | { name: 'suspect'; reason: string }
  /** Takes no jobs until a reading at or after `probeAt` finds no fault. */
  | { name: 'quarantined'; reason: string; since: number; probeAt: number };

export interface DeviceHealth {
  state: HealthState;
  /** Start of the current state, Unix ms. */
  since: number;
  /** Quarantines and failed probes that are not forgiven; they lengthen the next wait. */
  strikes: number;
  /** Error counts of the past: only new errors are judged. */
  eccVolatile: number | undefined;
  eccAggregate: number | undefined;
  /** Readings in a row without a report. */
  unread: number;
  /** Readings in a row over the temperature limit. */
  hot: number;
}

export interface HealthPolicy {
  /** Replaces the temperature at which the card slows itself down. */
  maxTemperatureC?: number;
  /** Readings in a row over the limit before the device is quarantined. */
  hotReadings: number;
  /** Failed readings in a row before the devices are quarantined. */
  unreadReadings: number;
  /** Waits before the probes of a quarantined device. */
  probe: BackoffOptions;
  /** A device that was healthy for this long loses its strikes, ms. */
  forgiveAfterMs: number;
}

export const DEFAULT_HEALTH_POLICY: HealthPolicy = {
  hotReadings: 3,
  unreadReadings: 3,
  probe: { baseMs: 30_000, maxMs: 30 * 60_000, jitter: 0.2 },
  forgiveAfterMs: 60 * 60_000,
};

export function startHealth(now: number): DeviceHealth {
  return {
    state: { name: 'healthy' },
    since: now,
    strikes: 0,
    eccVolatile: undefined,
    eccAggregate: undefined,
    unread: 0,
    hot: 0,
  };
}

export interface Judgement {
  health: DeviceHealth;
  reading: DeviceReading;
  now: number;
  policy: HealthPolicy;
}

/** Returns the health after one more reading. */
export function judgeReading({ health, reading, now, policy }: Judgement): DeviceHealth {
  if (reading.kind === 'skipped') return health;
  if (reading.kind === 'unreadable') {
    // A skipped reading changes nothing, and does not end a quarantine.
    const isOut = health.state.name === 'quarantined';
    return isOut ? health : change(health, suspect(reading.reason), now, policy);
  }
  const { verdict, hot } = weigh(health, reading, policy);
  const unread = reading.kind === 'unread' ? health.unread + 1 : 0;
  const counts = reading.kind === 'read' ? reading : health;
  const next: DeviceHealth = {
    ...health,
    hot,
    unread,
    eccVolatile: counts.eccVolatile ?? health.eccVolatile,
    eccAggregate: counts.eccAggregate ?? health.eccAggregate,
  };
  if (health.state.name === 'quarantined') return probe(next, health.state, verdict, now, policy);
  return change(next, verdict, now, policy);
}

type HealthVerdict =
  | { name: 'healthy' }
  | { name: 'suspect'; reason: string }
  | { name: 'bad'; reason: string };

function weigh(
  health: DeviceHealth,
  reading: Exclude<DeviceReading, { kind: 'skipped' | 'unreadable' }>,
  policy: HealthPolicy,
): { verdict: HealthVerdict; hot: number } {
  if (reading.kind === 'lost') return { verdict: bad(reading.reason), hot: 0 };
  if (reading.kind === 'unread') {
    const count = health.unread + 1;
    const reason = `no reading ${count} times in a row: ${reading.reason}`;
    const isEnough = count >= policy.unreadReadings;
    return { verdict: isEnough ? bad(reason) : suspect(reason), hot: health.hot };
  }
  const limitC = policy.maxTemperatureC ?? reading.slowdownC;
  const { temperatureC } = reading;
  const isHot = limitC !== undefined && temperatureC !== undefined && temperatureC >= limitC;
  const hot = isHot ? health.hot + 1 : 0;
  const failure = findFailure(health, reading);
  if (failure !== undefined) return { verdict: bad(failure), hot };
  if (isHot) {
    const reason = `${temperatureC} °C, with a limit of ${limitC} °C, ${hot} times in a row`;
    return { verdict: hot >= policy.hotReadings ? bad(reason) : suspect(reason), hot };
  }
  return { verdict: findWarning(reading), hot };
}

type Read = Extract<DeviceReading, { kind: 'read' }>;

function findFailure(health: DeviceHealth, reading: Read): string | undefined {
  if (hasGrown(health.eccVolatile, reading.eccVolatile)) {
    return `uncorrected memory errors grew from ${health.eccVolatile} to ${reading.eccVolatile}`;
  }
  if (hasGrown(health.eccAggregate, reading.eccAggregate)) {
    return `lifetime uncorrected memory errors grew from ${health.eccAggregate} to ${reading.eccAggregate}`;
  }
  if (reading.isRemapFailed) return 'remapping rows can no longer repair its memory';
  const { recoveryAction } = reading;
  if (recoveryAction !== undefined && /^(?:Reset|Reboot)$/i.test(recoveryAction)) {
    return `its driver asks for: ${recoveryAction}`;
  }
  return undefined;
}

/** A count that fell was reset, with the driver or by hand: start over. */
function hasGrown(before: number | undefined, after: number | undefined): boolean {
  return before !== undefined && after !== undefined && after > before;
}

function findWarning({ recoveryAction, isRetirementPending }: Read): HealthVerdict {
  if (recoveryAction !== undefined) return suspect(`its driver asks for: ${recoveryAction}`);
  if (isRetirementPending) return suspect('its memory needs a reset to retire pages');
  return { name: 'healthy' };
}

function bad(reason: string): HealthVerdict {
  return { name: 'bad', reason };
}

function suspect(reason: string): HealthVerdict {
  return { name: 'suspect', reason };
}

function change(
  health: DeviceHealth,
  verdict: HealthVerdict,
  now: number,
  policy: HealthPolicy,
): DeviceHealth {
  if (verdict.name === 'bad') return quarantine(health, verdict.reason, now, policy);
  if (verdict.name !== health.state.name) return { ...health, state: verdict, since: now };
  const isForgiven = verdict.name === 'healthy' && now - health.since >= policy.forgiveAfterMs;
  return { ...health, state: verdict, strikes: isForgiven ? 0 : health.strikes };
}

function quarantine(
  health: DeviceHealth,
  reason: string,
  now: number,
  policy: HealthPolicy,
): DeviceHealth {
  const strikes = health.strikes + 1;
  const probeAt = now + backoffMs(strikes, policy.probe);
  return {
    ...health,
    strikes,
    state: { name: 'quarantined', reason, since: now, probeAt },
    since: now,
  };
}

/** Before its time, a probe can only update the reason; it cannot end the quarantine. */
function probe(
  health: DeviceHealth,
  state: Extract<HealthState, { name: 'quarantined' }>,
  verdict: HealthVerdict,
  now: number,
  policy: HealthPolicy,
): DeviceHealth {
  const reason = verdict.name === 'bad' ? verdict.reason : state.reason;
  if (now < state.probeAt) return { ...health, state: { ...state, reason } };
  // A device that was merely not read is not healthy.
  const isUncertain = health.unread > 0 || health.hot > 0;
  if (verdict.name !== 'bad' && !isUncertain) return { ...health, state: verdict, since: now };
  const strikes = health.strikes + 1;
  const probeAt = now + backoffMs(strikes, policy.probe);
  return { ...health, strikes, state: { ...state, reason, probeAt } };
}
