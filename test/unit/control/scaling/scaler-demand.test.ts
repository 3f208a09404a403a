import { describe, expect, it } from 'vitest';
import { LoadPeak } from '../../../../src/control/scaling/scaler-demand.ts';
import { fc } from '../../../support/properties.ts';

const WINDOW_MS = 10;

describe('the peak of a load', () => {
  it('is the greatest value of the window, whatever came earlier', () => {
    const steps = fc.array(fc.record({ ms: fc.nat(6), value: fc.nat(9) }), { minLength: 1 });
    fc.assert(
      fc.property(steps, (all) => {
        const peak = new LoadPeak();
        const seen: { at: number; value: number }[] = [];
        let now = 0;
        for (const { ms, value } of all) {
          now += ms;
          seen.push({ at: now, value });
          const recent = seen.filter(({ at }) => at >= now - WINDOW_MS);
          expect(peak.note(value, now, WINDOW_MS)).toBe(
            Math.max(...recent.map((sample) => sample.value)),
          );
        }
      }),
    );
  });
});
