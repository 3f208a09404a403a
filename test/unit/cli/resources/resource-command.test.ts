// The question before a command deletes data, files of bodies as editors write them, and flags of fields.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, it, onTestFinished } from 'vitest';
import { parseOptions } from '../../../../src/cli/option-parser.ts';
import {
  composeBody,
  fieldOptions,
  readFields,
  readObjectFile,
} from '../../../../src/cli/resources/request-body.ts';
import { confirm } from '../../../../src/cli/resources/resource-command.ts';
import { ENDPOINT_FIELDS } from '../../../../src/wire/resources/fields.ts';

function openTerminal({ isTTY = true }: { isTTY?: boolean } = {}) {
  const input = Object.assign(new PassThrough(), { isTTY, setRawMode: () => input });
  const output = Object.assign(new PassThrough(), { isTTY });
  const printed = () => String(output.read() ?? '');
  return { terminal: { input, output }, printed };
}

describe('the question before a deletion', () => {
  it.each(['y\n', 'yes\n', ' YES \n'])('takes %j for yes', async (answer) => {
    const { printed, terminal } = openTerminal();
    const asked = confirm('Delete endpoint echo?', { yes: false }, terminal);
    terminal.input.write(answer);
    await asked;
    expect(printed()).toContain('Delete endpoint echo? [y/N] ');
  });

  it.each(['\n', 'n\n', 'yesterday\n'])('takes %j for no', async (answer) => {
    const { terminal } = openTerminal();
    const asked = confirm('Delete endpoint echo?', { yes: false }, terminal);
    terminal.input.write(answer);
    await expect(asked).rejects.toThrow('nothing was changed');
  });

  it('takes the end of the input for no', async () => {
    const { terminal } = openTerminal();
    const asked = confirm('Delete endpoint echo?', { yes: false }, terminal);
    terminal.input.end();
    await expect(asked).rejects.toThrow('nothing was changed');
  });

  it('ends with the exit code of an interrupt after Ctrl-C', async () => {
    const { terminal } = openTerminal();
    const asked = confirm('Delete endpoint echo?', { yes: false }, terminal);
    terminal.input.write('\u0003');
    await expect(asked).rejects.toMatchObject({ exitCode: 130 });
  });

  it.each([
    ['with --yes', { yes: true }, {}],
    ['without a terminal', { yes: false }, { isTTY: false }],
  ])('does not ask %s', async (_case, given, stream) => {
    const { printed, terminal } = openTerminal(stream);
    await confirm('Delete endpoint echo?', given, terminal);
    expect(printed()).toBe('');
  });

  it('escapes control characters of a name', async () => {
    const { printed, terminal } = openTerminal();
    const asked = confirm('Delete endpoint a\u001b[2J?', { yes: false }, terminal);
    terminal.input.write('y\n');
    await asked;
    expect(printed()).toContain(String.raw`a\u001b[2J?`);
  });
});

describe('a file of a body', () => {
  it('may begin with a byte order mark and have U+2028 in its texts', () => {
    const folder = mkdtempSync(join(tmpdir(), 'millrace-body-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const file = join(folder, 'body.json');
    writeFileSync(file, '\ufeff{"name":"a\u2028b"}\r\n');
    expect(readObjectFile('--file', file)).toEqual({ name: 'a\u2028b' });
    expect(composeBody(file, { size: 1 })).toEqual({ name: 'a\u2028b', size: 1 });
  });
});

describe('the flag of a switch', () => {
  it('turns it on and off, and leaves it alone if it is not given', () => {
    const fields = { yields: ENDPOINT_FIELDS.yields };
    const options = fieldOptions(fields, 'update');
    const read = (...args: string[]) => readFields(fields, parseOptions(options, args).values);
    expect([read('--yields', 'true'), read('--yields', 'false'), read()]).toEqual([
      { yields: true },
      { yields: false },
      { yields: undefined },
    ]);
    expect(() => read('--yields', 'yes')).toThrow(
      '--yields: must be one of true, false, got "yes"',
    );
  });
});
