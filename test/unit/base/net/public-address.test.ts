import { describe, expect, it } from 'vitest';
import { createUuidV7 } from '../../../../src/base/id.ts';
import { nameInternalHost } from '../../../../src/base/net/internal-host.ts';
import { anyAddress, publicOnly } from '../../../../src/base/net/public-address.ts';

describe('publicOnly', () => {
  it.each(['8.8.8.8', '1.1.1.1', '100.63.255.255', '172.32.0.1', '2606:4700::1111'])(
    'lets %s pass',
    (address) => {
      expect(publicOnly(address)).toBeUndefined();
    },
  );

  it.each([
    '0.0.0.0',
    '0.1.2.3',
    '10.0.0.1',
    '100.64.0.1',
    '127.0.0.1',
    '127.255.255.254',
    '168.63.129.16',
    '169.254.169.254',
    '172.16.0.1',
    '192.0.0.8',
    '192.0.2.1',
    '192.168.1.1',
    '198.18.0.1',
    '224.0.0.1',
    '240.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    '::127.0.0.1',
    '::8.8.8.8',
    '::ffff:127.0.0.1',
    '::ffff:8.8.8.8',
    '::ffff:0:127.0.0.1',
    '64:ff9b::7f00:1',
    '64:ff9b:1::a00:1',
    '100::1',
    '2001::1',
    '2001:db8::1',
    '2002:7f00:1::',
    '4000::1',
    'fc00::1',
    'fd12:3456::1',
    'fe80::1',
    'fec0::1',
    'ff02::1',
    'localhost',
    '',
  ])('refuses %s with the reason', (address) => {
    expect(publicOnly(address)).toMatch(/\w/);
  });
});

describe('anyAddress', () => {
  it('lets loopback pass', () => {
    expect(anyAddress('127.0.0.1')).toBeUndefined();
  });
});

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
