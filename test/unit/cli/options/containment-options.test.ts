import { describe, expect, it } from 'vitest';
import { readContainment } from '../../../../src/cli/options/engine-options.ts';
import { DEFAULT_CONTAINMENT } from '../../../../src/engine/docker/containment.ts';

const defaults = {
  ...{ containerPids: 4_096, containerCapabilities: 'usual' },
  ...{ containerNewPrivileges: false, containerGpuMemory: undefined },
};

describe('the permissions of containers', () => {
  it('is the default without an option', () => {
    expect(readContainment(defaults)).toEqual(DEFAULT_CONTAINMENT);
  });

  it.each([
    ['engine', 'engine'],
    ['none', []],
    ['cap_kill, NET_RAW', ['KILL', 'NET_RAW']],
    ['usual,SYS_CHROOT', [...DEFAULT_CONTAINMENT.capabilities, 'SYS_CHROOT']],
  ])('has the capabilities that %s names', (containerCapabilities, capabilities) => {
    expect(readContainment({ ...defaults, containerCapabilities }).capabilities).toEqual(
      capabilities,
    );
  });

  it.each(['KILL,', 'kill;reboot', '1'])('is refused for %s', (containerCapabilities) => {
    expect(() => readContainment({ ...defaults, containerCapabilities })).toThrow(
      '--container-capabilities',
    );
  });
});
