// From readings to a judgement: tables of what comes in a row.
import { describe, expect, it } from 'vitest';
import {
  DEFAULT_HEALTH_POLICY,
  type DeviceHealth,
  type DeviceReading,
  type HealthPolicy,
  judgeReading,
  startHealth,
} from '../../../../src/worker/gpu/device-health.ts';

const policy: HealthPolicy = {
  ...DEFAULT_HEALTH_POLICY,
  probe: { baseMs: 30_000, maxMs: 120_000, jitter: 0 },
};
const EVERY_MS = 10_000;

type Read = Extract<DeviceReading, { kind: 'read' }>;

function read(changes: Partial<Read> = {}): DeviceReading {
  return {
    kind: 'read',
    temperatureC: 50,
    slowdownC: 90,
    eccVolatile: 0,
    eccAggregate: 0,
    isRetirementPending: false,
    isRemapFailed: false,
    recoveryAction: undefined,
    ...changes,
  };
}

const well = read();
const hot = read({ temperatureC: 90 });
const unread: DeviceReading = { kind: 'unread', reason: 'it hangs' };
const unreadable: DeviceReading = { kind: 'unreadable', reason: 'it is being updated' };
const lost: DeviceReading = { kind: 'lost', reason: 'fell off the bus' };
const skipped: DeviceReading = { kind: 'skipped' };

/** Ten seconds apart, the first at 0. */
function judgeAll(readings: readonly DeviceReading[], rules = policy): DeviceHealth[] {
  let health = startHealth(0);
  return readings.map((reading, place) => {
    health = judgeReading({ health, reading, now: place * EVERY_MS, policy: rules });
    return health;
  });
}

function names(readings: readonly DeviceReading[], rules = policy): string {
  return judgeAll(readings, rules)
    .map(({ state }) => state.name[0])
    .join('');
}

function lastReason(readings: readonly DeviceReading[]): string {
  const state = judgeAll(readings).at(-1)?.state;
  return state && 'reason' in state ? state.reason : '';
}

describe('a device (h healthy, s suspect, q quarantined, after each reading)', () => {
  it.each<[string, DeviceReading[], string]>([
    ['with good readings', [well, well, well], 'hhh'],
    ['that reports no values', [read({ temperatureC: undefined, eccVolatile: undefined })], 'h'],
    [
      'with earlier errors',
      [read({ eccVolatile: 4, eccAggregate: 9 }), read({ eccVolatile: 4, eccAggregate: 9 })],
      'hh',
    ],
    ['whose errors grow', [well, read({ eccVolatile: 1 })], 'hq'],
    ['whose lifetime errors grow', [well, read({ eccAggregate: 1 })], 'hq'],
    [
      'that starts to report errors',
      [read({ eccVolatile: undefined }), read({ eccVolatile: 2 })],
      'hh',
    ],
    ['whose errors were reset', [read({ eccVolatile: 4 }), well, read({ eccVolatile: 1 })], 'hhq'],
    [
      'that omits its errors once',
      [well, read({ eccVolatile: undefined }), read({ eccVolatile: 1 })],
      'hhq',
    ],
    ['that cannot remap rows', [read({ isRemapFailed: true })], 'q'],
    ['with memory to retire', [read({ isRetirementPending: true }), well], 'sh'],
    ['that requests a reset', [read({ recoveryAction: 'Reset' })], 'q'],
    ['that requests a reboot', [read({ recoveryAction: 'Reboot' })], 'q'],
    ['that requests a drain', [read({ recoveryAction: 'Drain and Reset' })], 's'],
    ['that is lost', [well, lost], 'hq'],
    ['that is hot once', [hot, well], 'sh'],
    ['that is hot three times', [hot, hot, hot], 'ssq'],
    ['that is hot twice and twice', [hot, hot, well, hot, hot], 'sshss'],
    ['that cannot be read twice', [well, unread, unread, well], 'hssh'],
    ['that cannot be read three times', [unread, unread, unread], 'ssq'],
    ['that an updated nvidia-smi cannot read', [well, ...Array(9).fill(unreadable)], 'hsssssssss'],
    ['that becomes readable again', [unreadable, well], 'sh'],
    ['that is lost and then unreadable', [lost, ...Array(6).fill(unreadable), well], 'qqqqqqqh'],
    ['whose reading is skipped', [well, skipped, skipped, skipped], 'hhhh'],
  ])('%s', (_, readings, expected) => {
    expect(names(readings)).toBe(expected);
  });

  it('is compared with the configured limit instead of its own', () => {
    expect(names([read({ temperatureC: 80 })], { ...policy, maxTemperatureC: 80 })).toBe('s');
    expect(names([hot], { ...policy, maxTemperatureC: 95 })).toBe('h');
  });

  it.each<[DeviceReading[], RegExp]>([
    [[well, read({ eccVolatile: 3 })], /grew from 0 to 3/],
    [[hot, hot, hot], /90 °C, with a limit of 90 °C, 3 times/],
    [[unread, unread, unread], /3 times in a row: it hangs/],
    [[lost], /fell off the bus/],
  ])('has the reason %#', (readings, reason) => {
    expect(lastReason(readings)).toMatch(reason);
  });
});

describe('a quarantined device', () => {
  it('is readmitted with the first good reading after its wait, not before', () => {
    // Bad at 0, probe at 30 s: the readings are at 0, 10, 20, 30 s.
    expect(names([lost, well, well, well])).toBe('qqqh');
  });

  it('waits twice as long after each failed probe, up to the longest wait', () => {
    const probes = judgeAll(Array.from({ length: 50 }, () => lost)).flatMap(({ state }) =>
      state.name === 'quarantined' ? [state.probeAt] : [],
    );
    const times = [...new Set(probes)];
    expect(times.slice(0, 5)).toEqual([30_000, 90_000, 210_000, 330_000, 450_000]);
  });

  it('keeps its strikes after readmission, so that the next wait is longer', () => {
    const states = judgeAll([lost, well, well, well, lost]).at(-1)?.state;
    expect(states).toMatchObject({ name: 'quarantined', probeAt: 40_000 + 60_000 });
  });

  it('loses its strikes after a long healthy period', () => {
    const rules = { ...policy, forgiveAfterMs: 20_000 };
    const strikes = judgeAll([lost, well, well, well, well, well], rules).map(
      (each) => each.strikes,
    );
    expect(strikes).toEqual([1, 1, 1, 1, 1, 0]);
  });

  it('is not readmitted after a failed reading or while it is hot', () => {
    expect(names([lost, well, well, unread])).toBe('qqqq');
    expect(names([lost, well, well, hot])).toBe('qqqq');
  });

  it('is not quarantined again for the same errors', () => {
    const bad = read({ eccVolatile: 1 });
    expect(names([well, bad, bad, bad, bad])).toBe('hqqqh');
  });

  it('shows the latest reason', () => {
    expect(lastReason([lost, read({ isRemapFailed: true })])).toMatch(/can no longer repair/);
  });
});
