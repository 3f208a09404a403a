import { describe, expect, it } from 'vitest';
import { keysCommands } from '../../../../src/cli/resources/keys.ts';
import { type Platform, startPlatform } from '../../../support/api/platform.ts';
import { printVerb } from '../../../support/runs/verb-run.ts';

/** What the command prints, without the last line break. */
async function run({ admin, url }: Pick<Platform, 'admin' | 'url'>, ...args: string[]) {
  return (await printVerb(keysCommands, [...args, '--url', url, '--key', admin])).trim();
}

describe('millrace keys', () => {
  it('creates a key and shows it once', async () => {
    const platform = await startPlatform();
    const scopes = ['--scope', 'jobs:read:demo', '--scope', 'jobs:write:demo'];
    const [titles, line = '', , key = ''] = (
      await run(platform, 'create', '--name', 'ci', ...scopes)
    ).split('\n');
    expect(titles).toMatch(/^ID +USER +NAME +SCOPES +EXPIRES$/);
    expect(line).toMatch(/^key_\S+ +owner +ci +jobs:read:demo,jobs:write:demo +never$/);
    expect(platform.keys.authenticate(key)).toMatchObject({ name: 'ci' });
    const id = line.split(' ')[0] ?? '';
    const shown = await run(platform, 'show', id);
    expect(JSON.parse(shown)).toMatchObject({ id, userId: 'owner' });
    expect(shown).not.toContain(key);
  });

  it('creates keys of other users with an expiry and lists them in pages', async () => {
    const platform = await startPlatform();
    const whose = ['--user', 'ann', '--expires-at', '2999-01-01T00:00:00Z'];
    for (const name of ['one', 'two']) {
      await run(platform, 'create', '--name', name, '--scope', 'admin', ...whose);
    }
    const page = ['list', '--user', 'ann', '--limit', '1'];
    const [, first, more = ''] = (await run(platform, ...page)).split('\n');
    expect(first).toMatch(/ann +two +admin +2999-01-01T00:00:00\.000Z$/);
    const rest = await run(platform, ...page, ...more.replace('next page: ', '').split(' '));
    expect(rest).toMatch(/^key_\S+ +ann +one /m);
    expect(await run(platform, 'list', '--user', 'nobody')).toBe('no keys');
  });

  it('rotates and revokes keys, also with JSON output', async () => {
    const platform = await startPlatform();
    const { holder, key } = await platform.keys.issue({ name: 'x', scopes: ['worker'] });
    const rotate = ['rotate', holder.keyId, '--grace-seconds', '60', '--json'];
    const next = JSON.parse(await run(platform, ...rotate));
    expect(platform.keys.authenticate(next.key)?.keyId).toBe(next.id);
    expect(platform.keys.authenticate(key)).toBeDefined();
    expect(await run(platform, 'revoke', holder.keyId)).toBe(`${holder.keyId}  revoked`);
    expect(platform.keys.authenticate(key)).toBeUndefined();
    expect(JSON.parse(await run(platform, 'list', '--json')).keys).toHaveLength(3);
  });

  it('prints a refusal with each of its errors once', async () => {
    const platform = await startPlatform();
    const refused = run(platform, 'create', '--name', 'x', '--scope', 'root', '--scope', 'all');
    await expect(refused).rejects.toThrow(
      /^Validation failed \(422\):\n {2}--scope \(scopes\[0\]\): must be [^\n]*\n {2}--scope \(scopes\[1\]\): must be [^\n]*$/,
    );
    await expect(run(platform, 'show', 'key_no')).rejects.toThrow('key key_no not found');
  });

  it.each([
    [[], 'a command is missing'],
    [['make'], 'make: unknown command'],
    [['show'], '<id> is missing; give the key ID'],
    [['list', 'x'], 'x: unexpected argument'],
    [['create'], 'the request body is empty'],
    [['rotate', 'key_a', '--grace-seconds', '604801'], '--grace-seconds: must be a whole number'],
  ])('is refused for %j', async (args, message) => {
    await expect(run({ admin: 'mr_k', url: 'http://127.0.0.1:9' }, ...args)).rejects.toThrow(
      message,
    );
  });
});
