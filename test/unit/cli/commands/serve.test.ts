import { expect, it } from 'vitest';
import { listNames } from '../../../../src/cli/commands/serve.ts';
import { startPlatform } from '../../api/platform.ts';

it('serve lists the names of endpoints at its start, and bounds the list', async () => {
  const { endpoints } = await startPlatform();
  const [declared] = endpoints.all();
  if (!declared) throw new Error('no endpoint');
  const named = { ...declared, id: 'ep_1', settings: { ...declared.settings, name: 'chat' } };
  expect(listNames([declared, named])).toBe(`Endpoints: ${declared.id}, chat`);
  expect(listNames(new Array(25).fill(named))).toMatch(/^Endpoints: chat, .* and 5 more$/);
  expect(listNames([])).toBe('');
});
