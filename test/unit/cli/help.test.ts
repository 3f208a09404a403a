// Every command's help is complete, because it is made of the tables that arguments are parsed by.
import { describe, expect, it } from 'vitest';
import { conformanceCommand } from '../../../src/cli/commands/conformance.ts';
import { initCommand } from '../../../src/cli/commands/init.ts';
import { runCommand } from '../../../src/cli/commands/run.ts';
import { serveCommand } from '../../../src/cli/commands/serve.ts';
import { storeCommand } from '../../../src/cli/commands/store.ts';
import { webhookSecretCommand } from '../../../src/cli/commands/webhook-secret.ts';
import { devCommand } from '../../../src/cli/dev/dev.ts';
import { renderHelp } from '../../../src/cli/help.ts';
import { flagName } from '../../../src/cli/options.ts';
import { jobsCommand } from '../../../src/cli/resources/jobs.ts';
import { keysCommand } from '../../../src/cli/resources/keys.ts';
import { logsCommand } from '../../../src/cli/resources/logs.ts';
import { workerCommand } from '../../../src/cli/worker/worker.ts';

const commands = [
  conformanceCommand,
  devCommand,
  initCommand,
  jobsCommand,
  keysCommand,
  logsCommand,
  runCommand,
  serveCommand,
  storeCommand,
  webhookSecretCommand,
  workerCommand,
];

describe.each(commands)('$name', (command) => {
  const help = renderHelp(command);
  const unwrapped = help.replaceAll(/\s+/g, ' ');

  it('names every option with its default and its variable', () => {
    for (const [name, { defaultText, env }] of Object.entries(command.options)) {
      expect(unwrapped).toContain(flagName(name));
      if (defaultText !== undefined) expect(unwrapped).toContain(`default ${defaultText}`);
      if (env !== undefined) expect(unwrapped).toContain(env);
    }
  });

  it('names every argument and every exit code, and has an example', () => {
    for (const { name } of command.positionals) expect(help).toContain(name);
    for (const { code, meaning } of command.exitCodes) {
      expect(unwrapped).toContain(`${code} ${meaning}`);
    }
    expect(help).toContain('Examples:');
  });

  it('says the unit of every option in ms', () => {
    for (const [name, { help: line }] of Object.entries(command.options)) {
      if (/Ms$/.test(name)) expect(line).toMatch(/\bms\b/);
    }
  });

  it('is no wider than 100 columns', () => {
    for (const line of help.split('\n')) expect(line.length).toBeLessThanOrEqual(100);
  });
});
