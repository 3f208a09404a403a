// Whether a device may be given jobs, judged from one reading after the other. Pure: reading is in
// monitor.ts; what follows from a quarantine is the supervisor's.
import { type BackoffOptions, backoffMs } from '../../base/backoff.ts';

/** What one look at one device gave. `undefined`: not told. */
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
  /** The driver has lost it, or lists it no more. */
  | { kind: 'lost'; reason: string }
  /** nvidia-smi gave no report: nothing is known of any device. */
  | { kind: 'unread'; reason: string }
  /** The same, and the program is to blame: it is being updated, or does not fit the driver. */
  | { kind: 'unreadable'; reason: string }
  /** Nothing is known of this device, through no fault of its own. */
  | { kind: 'skipped' };

export type HealthState =
  /** Takes jobs. */
  | { name: 'healthy' }
  /** Takes jobs, and somebody should look at it. */
  | { name: 'suspect'; reason: string }
  /** Takes none until a reading at or after `probeAt` finds nothing. */
  | { name: 'quarantined'; reason: string; since: number; probeAt: number };

export interface DeviceHealth {
  state: HealthState;
  /** Since when it is in this state by name, Unix ms. */
  since: number;
  /** Quarantines and failed probes that are not forgiven: they make the next wait longer. */
  strikes: number;
  /** Error counts that are history: only what comes on top is judged. */
  eccVolatile: number | undefined;
  eccAggregate: number | undefined;
  /** Readings in a row without a report. */
  unread: number;
  /** Readings in a row over the limit of temperature. */
  hot: number;
}

export interface HealthPolicy {
  /** Instead of the temperature from which the card slows itself down. */
  maxTemperatureC?: number;
  /** Readings in a row over the limit before the device is quarantined. */
  hotReadings: number;
  /** Readings in a row that nvidia-smi failed before its devices are quarantined. */
  unreadReadings: number;
  /** Waits before the probes of a quarantined device. */
  probe: BackoffOptions;
  /** A device that was healthy for so long has no strikes any more, ms. */
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

/** The health after one more reading. */
export function judgeReading({ health, reading, now, policy }: Judgement): DeviceHealth {
  if (reading.kind === 'skipped') return health;
  if (reading.kind === 'unreadable') {
    // Nothing speaks against the device, and nothing for one that is out of service.
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

type Verdict =
  | { name: 'healthy' }
  | { name: 'suspect'; reason: string }
  | { name: 'bad'; reason: string };

function weigh(
  health: DeviceHealth,
  reading: Exclude<DeviceReading, { kind: 'skipped' | 'unreadable' }>,
  policy: HealthPolicy,
): { verdict: Verdict; hot: number } {
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
  return { verdict: findDoubt(reading), hot };
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

/** A count that fell was reset, with the driver or by hand: a new start. */
function hasGrown(before: number | undefined, after: number | undefined): boolean {
  return before !== undefined && after !== undefined && after > before;
}

function findDoubt({ recoveryAction, isRetirementPending }: Read): Verdict {
  if (recoveryAction !== undefined) return suspect(`its driver asks for: ${recoveryAction}`);
  if (isRetirementPending) return suspect('its memory needs a reset to retire pages');
  return { name: 'healthy' };
}

function bad(reason: string): Verdict {
  return { name: 'bad', reason };
}

function suspect(reason: string): Verdict {
  return { name: 'suspect', reason };
}

function change(
  health: DeviceHealth,
  verdict: Verdict,
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

/** Before its time a probe can only tell why the device is still bad, and not that it is well. */
function probe(
  health: DeviceHealth,
  state: Extract<HealthState, { name: 'quarantined' }>,
  verdict: Verdict,
  now: number,
  policy: HealthPolicy,
): DeviceHealth {
  const reason = verdict.name === 'bad' ? verdict.reason : state.reason;
  if (now < state.probeAt) return { ...health, state: { ...state, reason } };
  // One that is merely not read is not well: nothing speaks for it.
  const isDoubtful = health.unread > 0 || health.hot > 0;
  if (verdict.name !== 'bad' && !isDoubtful) return { ...health, state: verdict, since: now };
  const strikes = health.strikes + 1;
  const probeAt = now + backoffMs(strikes, policy.probe);
  return { ...health, strikes, state: { ...state, reason, probeAt } };
}
