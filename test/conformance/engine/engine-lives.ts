// Creating and starting containers, and their environment.
import { describe, expect, it } from 'vitest';
import { EngineError } from '../../../src/engine/engine.ts';
import { type EngineStage, shell } from './engine-stage.ts';

export function describeLives(stage: EngineStage): void {
  describe('starting', () => {
    it('creates a container without starting it', async () => {
      const spec = stage.spec();
      await stage.engine.create(spec);
      expect(await stage.engine.inspect(spec.id)).toMatchObject({
        id: spec.id,
        generation: 1,
        labels: { color: 'green' },
        state: 'created',
        exitCode: null,
        startedAt: null,
        endedAt: null,
        ports: [],
      });
    });

    it('keeps a container of the same generation', async () => {
      const { id } = await stage.run('echo first; exec sleep 1000');
      await stage.untilPrinted(id, 'first');
      await stage.engine.create(stage.spec({ id, args: shell('echo second') }));
      expect(await stage.engine.inspect(id)).toMatchObject({ generation: 1, state: 'running' });
      expect(await stage.engine.list()).toHaveLength(1);
    });

    it('does not replace an existing generation', async () => {
      const { id } = await stage.run('exec sleep 1000');
      const next = stage.spec({ id, generation: 2 });
      await expect(stage.engine.create(next)).rejects.toBeInstanceOf(EngineError);
      expect(await stage.engine.inspect(id)).toMatchObject({ generation: 1, state: 'running' });
    });

    it('starts a created container, and does nothing if it runs', async () => {
      const { id } = await stage.run('echo here; exec sleep 1000');
      await stage.untilPrinted(id, 'here');
      const first = await stage.engine.inspect(id);
      await stage.engine.start(id);
      const second = await stage.engine.inspect(id);
      expect(first).toMatchObject({ state: 'running', exitCode: null, endedAt: null });
      expect(first?.startedAt).toBeGreaterThan(0);
      expect(second?.startedAt).toBe(first?.startedAt);
      expect(await stage.printed(id)).toBe('here\n');
    });

    it('splits arguments as a shell does, and expands nothing', async () => {
      const script = 'console.log(JSON.stringify(process.argv.slice(1)))';
      const args = `${stage.under.node} -e '${script}' -- "a  b" c\\ d '' $HOME '*' "it's"`;
      const spec = stage.spec({ args });
      await stage.start(spec);
      await stage.untilExited(spec.id);
      const printed = await stage.untilPrinted(spec.id, '\n');
      expect(JSON.parse(printed)).toEqual(['a  b', 'c d', '', '$HOME', '*', "it's"]);
    });

    it('refuses arguments with an open quote', async () => {
      const spec = stage.spec({ args: 'echo "half' });
      await expect(stage.engine.create(spec)).rejects.toMatchObject({ code: 'refused' });
      expect(await stage.engine.inspect(spec.id)).toBeUndefined();
    });

    it('shows a missing command as exited with 127, or refuses to start it', async () => {
      const spec = stage.spec({ args: 'no-such-command-anywhere' });
      await stage.engine.create(spec);
      const refusal = await stage.engine.start(spec.id).catch((error: unknown) => error);
      if (refusal !== undefined) expect(refusal).toMatchObject({ code: 'refused' });
      else expect(await stage.untilExited(spec.id)).toMatchObject({ exitCode: 127 });
    });

    it('cannot start an unknown container', async () => {
      await expect(stage.engine.start('pod_nowhere')).rejects.toBeInstanceOf(EngineError);
    });
  });

  describe('the environment', () => {
    it('contains only its spec and the documented variables of the engine', async () => {
      const env = {
        PLAIN: 'one',
        EMPTY: '',
        'dotted.and-dashed': 'two',
        LINES: 'a\nb "c" $d \'e\' \\f',
        IFS: ':',
      };
      process.env['MILLRACE_TEST_SECRET'] = 'of the platform';
      const print = 'console.log(JSON.stringify(process.env))';
      const spec = stage.spec({ args: `${stage.under.node} -e '${print}'`, env });
      await stage.start(spec);
      await stage.untilExited(spec.id);
      const seen = JSON.parse(await stage.untilPrinted(spec.id, '}'));
      expect(seen).toMatchObject(env);
      const expected = new Set([...Object.keys(env), ...stage.under.addedVariables]);
      expect(Object.keys(seen).filter((name) => !expected.has(name))).toEqual([]);
    });
  });
}
