// The permissions of a container, read from inside the container.
import { describe, expect, it } from 'vitest';
import { DEFAULT_CONTAINMENT } from '../../../src/engine/containment.ts';
import type { DockerGround } from './docker-ground.ts';
import { type EngineStage, shell } from './engine-stage.ts';

/** Bits of /proc/PID/status, as capabilities(7) numbers them. */
const USUAL = [0, 1, 3, 4, 5, 6, 7, 10].reduce((bits, bit) => bits + 2 ** bit, 0);
const STATUS = 'grep -E "CapBnd|CapEff|NoNewPrivs" /proc/self/status; echo end';

export function describeContainment(stage: EngineStage, ground: DockerGround): void {
  describe('the permissions of a container', () => {
    const mask = (bits: number) => bits.toString(16).padStart(16, '0');

    it('are those that root in it needs for its own files and users', async () => {
      const { id } = await stage.run(STATUS);
      const printed = await stage.untilPrinted(id, 'end');
      expect(printed).toMatch(new RegExp(`CapEff:\\s+${mask(USUAL)}`));
      expect(printed).toMatch(new RegExp(`CapBnd:\\s+${mask(USUAL)}`));
      expect(printed).toMatch(/NoNewPrivs:\s+1/);
    });

    it('are extended by the operator', async () => {
      const containment = { ...DEFAULT_CONTAINMENT, newPrivileges: 'allowed' as const };
      const engine = ground.openEngine({ containment: { ...containment, capabilities: ['KILL'] } });
      const spec = stage.spec({ args: shell(STATUS) });
      await engine.create(spec);
      await engine.start(spec.id);
      const printed = await stage.untilPrinted(spec.id, 'end');
      expect(printed).toMatch(new RegExp(`CapEff:\\s+${mask(2 ** 5)}`));
      expect(printed).toMatch(/NoNewPrivs:\s+0/);
    });

    it('include a limit of processes', async () => {
      const engine = ground.openEngine({ containment: { ...DEFAULT_CONTAINMENT, pids: 16 } });
      const script = 'for i in $(seq 40); do sleep 1000 & done; echo all';
      const spec = stage.spec({ args: shell(`(${script}) 2>&1; echo end`) });
      await engine.create(spec);
      await engine.start(spec.id);
      expect(await stage.untilPrinted(spec.id, 'end')).toMatch(/fork|unavailable/i);
      expect(engine.capabilities.limits.processes).toBe(true);
      const unlimited = ground.openEngine({ containment: { ...DEFAULT_CONTAINMENT, pids: 0 } });
      expect(unlimited.capabilities.limits.processes).toBe(false);
    });
  });
}
