// Notes of a user, through the API, the client and the command.
import { expect, it, vi } from 'vitest';
import { notesCommand } from '../../../src/cli/resources/notes.ts';
import { ApiError, createPlatform } from '../../../src/client.ts';
import { DEFAULT_QUOTAS } from '../../../src/control/limits/quotas.ts';
import { notes as resource } from '../../../src/wire/resources/note.ts';
import { readJson, startPlatform } from './platform.ts';

it('a note is created, listed in pages, shown, updated and deleted', async () => {
  const { admin, url } = await startPlatform();
  const { notes } = createPlatform({ url, key: admin });
  const note = await notes.create({ name: 'a', text: 'one' });
  const second = await notes.create({ name: 'b' });
  expect(second).toMatchObject({ id: expect.stringMatching(/^note_/), name: 'b', text: '' });
  const page = await notes.page({ limit: 1 });
  expect(page.items).toEqual([second]);
  expect((await notes.page({ limit: 1, cursor: page.cursor })).items).toEqual([note]);
  expect(await notes.update(note.id, { text: 'two' })).toEqual({ ...note, text: 'two' });
  expect(await notes.get(note.id)).toMatchObject({ text: 'two' });
  await notes.delete(note.id);
  await expect(notes.get(note.id)).rejects.toThrow(ApiError);
});

it('a note is seen by its user alone, with the scope', async () => {
  const { call, keys, post } = await startPlatform();
  const made = await post('/v1/notes', { name: 'a' });
  const { id } = resource.record.parse(await readJson(made));
  expect(made.headers.get('location')).toBe(`/v1/notes/${id}`);
  const statusFor = async (userId: string, scope: string) => {
    const { key } = await keys.issue({ name: 'k', userId, scopes: [scope] });
    return (await call(`/v1/notes/${id}`, { headers: { authorization: key } })).status;
  };
  expect(await statusFor('owner', 'endpoints:read')).toBe(200);
  expect(await statusFor('owner', 'pods:read')).toBe(403);
  expect(await statusFor('bob', 'admin')).toBe(404);
});

it('notes beyond the quota, and what is no note, are refused', async () => {
  const { post } = await startPlatform({ quotas: { ...DEFAULT_QUOTAS, notes: 1 } });
  expect((await post('/v1/notes', { name: 'a', more: 1 })).status).toBe(422);
  expect((await post('/v1/notes', { name: 'a' })).status).toBe(201);
  expect(await readJson(await post('/v1/notes', { name: 'b' }))).toMatchObject({
    ...{ status: 409, code: 'quota_exceeded' },
  });
});

it('millrace notes creates and lists them', async () => {
  const { admin, url } = await startPlatform();
  const write = vi.spyOn(process.stdout, 'write').mockReturnValue(true);
  try {
    const target = ['--url', url, '--key', admin];
    expect(await notesCommand.run(['create', '--name', 'a', '--text', 'one', ...target])).toBe(0);
    expect(await notesCommand.run(['list', ...target])).toBe(0);
    expect(write.mock.calls.at(-1)?.[0]).toMatch(/^ID +NAME +TEXT\nnote_\S+ +a +one\n$/);
  } finally {
    write.mockRestore();
  }
});
