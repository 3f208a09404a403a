// Follows docs/guides/tutorial.md in a project: each command as printed, except for the port.
import { writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { CommandRun } from '../e2e/cli/command-run.ts';
import { outerPath } from './npm.ts';
import { readCodeBlocks } from './printed-commands.ts';

const PRINTED_URL = 'http://127.0.0.1:8000';

export interface TutorialResult {
  /** Output of the command that runs a job on this machine. */
  local: string;
  deployed: string;
  /** Milliseconds from the start of `npx millrace serve` to the first chunk of the deployed endpoint. */
  deployMs: number;
  /** Server-sent events of another job. */
  events: string;
  rollback: string;
}

/** The lines of the page's commands, and its handler. */
export async function readTutorial(): Promise<{ handler: string; lines: string[] }> {
  const blocks = await readCodeBlocks('docs/guides/tutorial.md');
  const handler = blocks.find(({ language }) => language === 'ts')?.text ?? '';
  const lines = blocks
    .filter(({ language }) => language === '')
    .flatMap(({ text }) => text.trim().split('\n'));
  return { handler, lines };
}

/** Steps 2 to 8, in a project whose packages are installed. */
export async function followTutorial(project: string): Promise<TutorialResult> {
  const { handler, lines } = await readTutorial();
  const find = (part: string) => lines.filter((line) => line.includes(part));
  const runs: CommandRun[] = [];
  /** In a shell of its own, as in a terminal. */
  const start = (script: readonly string[], url = PRINTED_URL) => {
    const text = script.join('\n').replaceAll(PRINTED_URL, url);
    const env = {
      PATH: [join(project, 'node_modules/.bin'), outerPath].join(delimiter),
      MILLRACE_URL: url,
      XDG_CONFIG_HOME: join(project, 'no-profiles'),
    };
    const run = new CommandRun(['-c', text], { command: 'bash', cwd: project, env });
    runs.push(run);
    return run;
  };
  const finish = async (script: readonly string[], url: string) => {
    const { code, stderr, stdout } = await start(script, url).ended;
    if (code !== 0) throw new Error(`${script.join('\n')}\nexits with ${code}: ${stderr}`);
    return stdout;
  };
  const ready = (run: CommandRun) => run.until('stdout', /is ready at (\S+)\n/);
  try {
    writeFileSync(join(project, 'handler.ts'), handler);
    // What `npm start` runs.
    const dev = start(['exec millrace dev handler.ts --port 0']);
    const local = await finish(find('--endpoint handler'), await ready(dev));
    await dev.end('SIGINT');

    const began = performance.now();
    const [serve = ''] = find('millrace serve');
    const platform = start([`${serve.replace('npx millrace', 'exec millrace')} --port 0`]);
    const url = await ready(platform);
    const [key = ''] = find('export MILLRACE_KEY');
    const [deploy = ''] = find('millrace deploy');
    const first = start([key, deploy, ...find('submit --endpoint shout')], url);
    await first.until('stdout', /^"HELLO"$/m);
    const deployMs = performance.now() - began;
    const { stdout: deployed } = await first.ended;
    const events = await finish([key, ...find('JOB')], url);
    const changed = handler.replace('toUpperCase', 'toLowerCase');
    writeFileSync(join(project, 'handler.ts'), changed);
    const rollback = await finish([key, deploy, ...find('millrace rollback')], url);
    await platform.end('SIGINT');
    await finish(find('millrace down'), url);
    return { local, deployed, deployMs, events, rollback };
  } finally {
    for (const run of runs) run.kill();
    await Promise.all(runs.map((run) => run.ended));
  }
}
