import { beforeEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../../../src/base/log.ts';
import {
  CheckError,
  registerCheck,
  runRegisteredChecks,
} from '../../../../src/handler/loading/registered-checks.ts';

const ctx = { signal: new AbortController().signal, log: silentLog, devices: [] };
const ran: string[] = [];

beforeEach(() => {
  ran.length = 0;
  for (const name of ['a', 'b', 'c']) registerCheck(name, () => ran.push(name));
});

describe('checks', () => {
  it('run one after another, in order, with the setup context', async () => {
    registerCheck('b', async (given) => {
      await new Promise((resolve) => setImmediate(resolve));
      ran.push(`b with ${given === ctx}`);
    });
    await runRegisteredChecks(ctx);
    expect(ran).toEqual(['a', 'b with true', 'c']);
  });

  it.each([
    [
      'throws',
      () => {
        throw new Error('no weights');
      },
      'no weights',
    ],
    [
      'rejects',
      async () => {
        throw new Error('no weights');
      },
      'no weights',
    ],
    ['returns false', () => false, 'it returned false'],
  ])('fail if one %s, and the others do not run', async (_, check, fault) => {
    registerCheck('b', check);
    await expect(runRegisteredChecks(ctx)).rejects.toMatchObject({
      check: 'b',
      ...{ name: CheckError.name, message: expect.stringContaining(fault) },
    });
    expect(ran).toEqual(['a']);
  });

  it('pass on any other value', async () => {
    registerCheck('b', () => 0);
    await expect(runRegisteredChecks(ctx)).resolves.toBeUndefined();
  });

  it('have a name', () => {
    expect(() => registerCheck('', () => {})).toThrow(TypeError);
  });
});
