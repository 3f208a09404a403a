import { describe, expect, it } from 'vitest';
import { createUuidV7 } from '../../../../src/base/id.ts';
import { nameInternalHost } from '../../../../src/base/net/internal-host.ts';

/** RFC 1123 and RFC 1035: labels of letters, digits and inner hyphens. */
const HOST_NAME =
  /^(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/;

describe('the internal host name of a pod', () => {
  it('is the pod ID with a hyphen, for IDs that the platform creates', () => {
    const uuid = createUuidV7(Date.now());
    expect(nameInternalHost(`pod_${uuid}`)).toBe(`pod-${uuid}.millrace.internal`);
  });

  it('is valid and unique for any ID', () => {
    const ids = [
      ...['pod_a', 'pod-a', 'pod__a', 'pod_A', 'pod_a_', '_', '--', '', 'é', 'a.b', 'a b'],
      ...['x'.repeat(63), 'x'.repeat(64), `pod_${'x'.repeat(59)}`, `pod_${'x'.repeat(80)}`],
      `${'x'.repeat(49)}_${'y'.repeat(30)}`,
    ];
    const names = ids.map(nameInternalHost);
    for (const name of names) expect(name).toMatch(HOST_NAME);
    expect(new Set(names).size).toBe(ids.length);
  });
});
