import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createLog, silentLog } from '../../../../src/base/log.ts';
import type { ContainerSpec } from '../../../../src/engine/engine.ts';
import { ProcessEngine } from '../../../../src/engine/process/process-engine.ts';
import { makeSpec, OnePod, shell } from '../../../support/containers/one-pod.ts';

let pod: OnePod;

beforeEach(() => {
  pod = new OnePod();
});

afterEach(() => pod.clear());

describe('a process', () => {
  it('has its disk as working directory and home', async () => {
    const script = 'pwd; echo "$HOME"; echo "$TMPDIR"; touch "$TMPDIR/x" && echo ok';
    const printed = await pod.printed({ args: shell(script) });
    const { disk } = pod;
    expect(printed).toBe(`${disk}\n${disk}\n${disk}/tmp\nok\n`);
  });

  it('finds its mount below the disk and in MILLRACE_MOUNT', async () => {
    const mounts = [{ kind: 'persistent' as const, source: 'data', path: '/a/b' }];
    const script = 'echo x > "$MILLRACE_MOUNT/file"; cat a/b/file; echo "$MILLRACE_MOUNT"';
    const volume = join(pod.folder, 'volumes/pod_a/data');
    expect(await pod.printed({ args: shell(script), mounts })).toBe(`x\n${volume}\n`);
  });

  it('finds its mount even if the path ends with a slash', async () => {
    const mounts = [{ kind: 'persistent' as const, source: 'data', path: '/a/.//b/' }];
    expect(await pod.printed({ args: shell('cd a/b && pwd -P'), mounts })).toBe(
      `${join(pod.folder, 'volumes/pod_a/data')}\n`,
    );
  });

  it('is a worker with its arguments, for a handler', async () => {
    const handler = '/handlers/one.ts';
    expect(await pod.printed({ handler, args: '--slots "2 3"' })).toBe(
      `worker ${handler} --slots 2 3 known\n`,
    );
  });

  it('has the variables of handlers only with a handler', async () => {
    expect(await pod.printed({ args: shell('echo "<$OF_HANDLERS>"') })).toBe('<>\n');
  });

  it('has its keys on its input and in the environment of no process, for a handler', async () => {
    const environs = 'cat /proc/$$/environ /proc/$PPID/environ';
    const script = `cat; ${environs} | tr '\\0' '\\n' | grep -E 'KEY|OTHER' | sort -u`;
    const runHandler = { execPath: '/bin/sh', args: ['-c', script], env: {} };
    pod.engine = pod.open({ runHandler });
    const env = { MILLRACE_KEY: 'mr_a', RUNPOD_AI_API_KEY: 'mr_b', OTHER: 'x' };
    expect(await pod.printed({ handler: '/handlers/one.ts', env })).toBe(
      '{"MILLRACE_KEY":"mr_a","RUNPOD_AI_API_KEY":"mr_b"}\nMILLRACE_KEYS_ON_STDIN=1\nOTHER=x\n',
    );
  });

  it('keeps its keys in its environment without a handler: its program may not read them elsewhere', async () => {
    const env = { MILLRACE_KEY: 'mr_a' };
    expect(await pod.printed({ args: shell('cat; echo $MILLRACE_KEY'), env })).toBe('mr_a\n');
  });

  it('sees only its own GPUs', async () => {
    const args = shell('echo $CUDA_VISIBLE_DEVICES');
    expect(await pod.printed({ args, gpus: ['GPU-a'] })).toBe('GPU-a\n');
  });

  it('starts again even if it has removed the files on its disk', async () => {
    await pod.printed({ args: shell('rm -rf "$TMPDIR"; echo x > "$TMPDIR"; echo run') });
    await pod.engine.start('pod_a');
    expect(await pod.untilPrinted('run\nrun\n')).toBe('run\nrun\n');
  });
});

describe('a container that cannot run', () => {
  it.each<[string, Partial<ContainerSpec>, string]>([
    ['no command', { args: ' ' }, 'args'],
    ['a variable before the command', { args: 'A=b node' }, 'env'],
    ['a network', { network: 'user-1' }, 'network'],
    ['an unknown GPU', { gpus: ['GPU-b'] }, 'GPU-b'],
    ['an ID that leads out of the folder', { id: '../pod' }, '../pod'],
    [
      'a volume that leads out',
      { mounts: [{ kind: 'persistent', source: '..', path: '/a' }] },
      '..',
    ],
    [
      'a mount that leads out',
      { mounts: [{ kind: 'persistent', source: 'd', path: '/../a' }] },
      '/../a',
    ],
    [
      'a mount over the whole disk',
      { mounts: [{ kind: 'persistent', source: 'd', path: '/./' }] },
      '/./',
    ],
  ])('is refused: %s', async (_what, part, named) => {
    const attempt = pod.engine.create(makeSpec(part));
    await expect(attempt).rejects.toMatchObject({
      code: 'refused',
      message: expect.stringContaining(named),
    });
    expect(await pod.engine.list()).toEqual([]);
  });

  it('is refused with a handler if the engine runs no handlers', async () => {
    const without = new ProcessEngine({ folder: pod.folder, log: silentLog });
    const attempt = without.create(makeSpec({ handler: '/h.ts' }));
    await expect(attempt).rejects.toMatchObject({ code: 'refused' });
  });

  it('is unavailable until the folder of its network volume exists', async () => {
    const source = join(pod.folder, 'elsewhere');
    const spec = makeSpec({ mounts: [{ kind: 'network', source, path: '/data' }] });
    await expect(pod.engine.create(spec)).rejects.toMatchObject({ code: 'unavailable' });
    mkdirSync(source);
    await pod.engine.create(spec);
    rmSync(source, { recursive: true });
    await expect(pod.engine.start('pod_a')).rejects.toMatchObject({ code: 'unavailable' });
  });
});

describe('the control groups of the machine', () => {
  it('are searched for the first pod, not for an engine without pods', async () => {
    const lines: string[] = [];
    const log = createLog({ destination: { write: (line) => lines.push(line) } });
    pod.engine = pod.open({ log });
    await pod.engine.list();
    expect(lines).toEqual([]);
    await pod.printed({ args: shell('echo run') });
    expect(lines.filter((line) => line.includes('resource limits of pods'))).toHaveLength(1);
    await pod.open({ log }).list();
    expect(lines.filter((line) => line.includes('resource limits of pods'))).toHaveLength(2);
  });
});
