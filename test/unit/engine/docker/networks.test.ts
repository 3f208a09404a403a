// How containers reach their engine's machine, from the engine's own description.
import { expect, it } from 'vitest';
import { readReach } from '../../../../src/engine/docker/networks.ts';

const bridge = { IPAM: { Config: [{ Gateway: 'fd00::1' }, { Gateway: '172.17.0.1' }] } };
const linux = { OperatingSystem: 'Debian GNU/Linux 12 (bookworm)' };

it.each([
  ['of Docker', { info: linux, version: {}, bridge }, '172.17.0.1', 'gateway'],
  [
    'of Docker Desktop',
    { info: { OperatingSystem: 'Docker Desktop' }, version: {}, bridge },
    '172.17.0.1',
    'loopback',
  ],
  [
    'of podman',
    { info: {}, version: { Components: [{ Name: 'Podman Engine' }] }, bridge },
    '172.17.0.1',
    'none',
  ],
  [
    'of Docker since its first start',
    { info: linux, version: {}, bridge: { IPAM: { Config: [{ Subnet: '172.17.0.0/16' }] } } },
    '172.17.0.1',
    'gateway',
  ],
  ['without a default network', { info: linux, version: {}, bridge: undefined }, null, 'none'],
  [
    'whose network names no gateway',
    { info: linux, version: {}, bridge: { IPAM: { Config: null } } },
    null,
    'none',
  ],
] as const)('an engine %s', (_what, given, gateway, hostName) => {
  expect(readReach(given)).toEqual({ gateway, hostName });
});
