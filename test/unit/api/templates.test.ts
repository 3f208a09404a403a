import { describe, expect, it } from 'vitest';
import { HIDDEN_VALUE } from '../../../src/wire/resources/fields.ts';
import { templateList, templateRecord } from '../../../src/wire/resources/template.ts';
import { errorAt } from '../../support/answers.ts';
import { ENDPOINT, type Platform, readJson, startPlatform } from '../../support/api/platform.ts';

const TEMPLATE = { name: 'one', image: 'img', handler: '/srv/h.ts' };

async function create({ post }: Platform, given: object = {}) {
  const response = await post('/v1/templates', { ...TEMPLATE, ...given });
  expect(response.status).toBe(201);
  const template = templateRecord.parse(await readJson(response));
  expect(response.headers.get('location')).toBe(`/v1/templates/${template.id}`);
  return template;
}

const patch = ({ post }: Platform, id: string, body: unknown) =>
  post(`/v1/templates/${id}`, body, { method: 'PATCH' });

async function expectProblem(response: Response, status: number, errors?: unknown[]) {
  expect(response.status).toBe(status);
  expect(response.headers.get('content-type')).toBe('application/problem+json');
  expect(await readJson(response)).toMatchObject({ status, ...(errors && { errors }) });
}

describe('a template', () => {
  it('is created, read, changed and removed', async () => {
    const platform = await startPlatform();
    const { call } = platform;
    const made = await create(platform, { env: { A: '1' }, ports: ['80/http'] });
    const path = `/v1/templates/${made.id}`;
    expect(made).toMatchObject({ ...TEMPLATE, env: { A: '1' }, ports: ['80/http'], version: 1 });
    expect(await readJson(await call(path))).toEqual(made);
    const changed = await patch(platform, made.id, { args: 'run' });
    expect(changed.status).toBe(200);
    expect(await readJson(changed)).toEqual({ ...made, args: 'run', version: 2 });
    const removed = await call(path, { method: 'DELETE' });
    expect(removed.status).toBe(204);
    expect(await removed.text()).toBe('');
    await expectProblem(await call(path), 404);
    await expectProblem(await call(path, { method: 'DELETE' }), 404);
    await expectProblem(await patch(platform, made.id, {}), 404);
  });

  it('is listed in pages, newest first', async () => {
    const platform = await startPlatform();
    for (const name of ['a', 'b', 'c']) await create(platform, { name });
    const read = async (query: string) =>
      templateList.parse(await readJson(await platform.call(`/v1/templates?${query}`)));
    const first = await read('limit=2');
    expect(first.templates.map(({ name }) => name)).toEqual(['c', 'b']);
    const second = await read(`limit=2&cursor=${first.cursor}`);
    expect(second.templates.map(({ name }) => name)).toEqual(['a']);
    expect(second).not.toHaveProperty('cursor');
    await expectProblem(await platform.call('/v1/templates?limit=0'), 422);
  });

  it.each([
    [{ image: 'i' }, 'name'],
    [{ name: 'n' }, 'image'],
    [{ ...TEMPLATE, image: '-rf' }, 'image'],
    [{ ...TEMPLATE, disk: 0 }, 'disk'],
    [{ ...TEMPLATE, ports: ['80'] }, 'ports[0]'],
    [{ ...TEMPLATE, env: { A: 1 } }, 'env.A'],
    [{ ...TEMPLATE, more: 1 }, 'more'],
    [{ ...TEMPLATE, registry: 'x' }, 'registry'],
  ])('is refused as %j, by path', async (body, path) => {
    const { post } = await startPlatform();
    await expectProblem(await post('/v1/templates', body), 422, [errorAt(path)]);
  });

  it('is refused with an image that is no reference, like a pod', async () => {
    const platform = await startPlatform();
    const { post } = platform;
    const paths = ['..', '../json', 'a/../../containers', 'a/.', './a'];
    for (const image of [
      ...paths,
      'a b',
      'a\n',
      'a\u0007',
      'a\u007f',
      'ä',
      '',
      'i'.repeat(5_000),
    ]) {
      const body = { name: 'n', image };
      await expectProblem(await post('/v1/templates', body), 422, [errorAt('image')]);
      const pod = { ...body, cpu: { flavor: 'cpu', vcpus: 1, memory: 1 } };
      const { errors } = Object(await readJson(await post('/v2/pods', pod)));
      expect(errors).toContainEqual(errorAt('image'));
    }
    for (const image of ['a..b/c:1..2', 'host:5000/a/b_c@sha256:00', 'a...']) {
      expect((await create(platform, { name: `n${image.length}`, image })).image).toBe(image);
    }
  });

  it('is refused if it is not JSON, of another type, or too large', async () => {
    const { post } = await startPlatform();
    const asText = { headers: { 'content-type': 'text/plain' } };
    await expectProblem(await post('/v1/templates', '{'), 400);
    await expectProblem(await post('/v1/templates', TEMPLATE, asText), 415);
    const large = { ...TEMPLATE, args: 'x'.repeat(1_100_000) };
    await expectProblem(await post('/v1/templates', large), 413);
    await expectProblem(await post('/v1/templates', TEMPLATE, { method: 'PUT' }), 405);
  });

  it('is not removed while an endpoint uses it', async () => {
    const platform = await startPlatform({ engine: 'process' });
    const { id } = await create(platform);
    await platform.post('/v1/endpoints', { name: 'e', templateId: id });
    const response = await platform.call(`/v1/templates/${id}`, { method: 'DELETE' });
    await expectProblem(response, 409);
  });

  it('shows the values of variables only to keys that may write them', async () => {
    const platform = await startPlatform();
    const { call, keys, post } = platform;
    const { id } = await create(platform, { env: { TOKEN: 's3cret' } });
    const path = `/v1/templates/${id}`;
    const issue = async (...scopes: string[]) => {
      const { key } = await keys.issue({ name: 'k', userId: 'owner', scopes });
      return { headers: { authorization: key } };
    };
    const readAll = async (holder: RequestInit) => {
      const [one, page] = await Promise.all([call(path, holder), call('/v1/templates', holder)]);
      const { templates } = templateList.parse(await readJson(page));
      return [await readJson(one), ...templates].map((each) => Reflect.get(each, 'env'));
    };
    const hidden = { TOKEN: HIDDEN_VALUE };
    // A scope of one endpoint gives no right to templates, and neither does one of pods.
    const reader = await issue('endpoints:read', `admin:${ENDPOINT}`, 'pods:write');
    expect(await readAll(reader)).toEqual([hidden, hidden]);
    const writer = await issue('endpoints:read', 'endpoints:write');
    expect(await readAll(writer)).toEqual([{ TOKEN: 's3cret' }, { TOKEN: 's3cret' }]);
    const changed = await post(path, { env: { TOKEN: 'new' } }, { ...writer, method: 'PATCH' });
    expect(await readJson(changed)).toMatchObject({ env: { TOKEN: 'new' } });
  });

  it('does not take the mask of hidden values as a value', async () => {
    const platform = await startPlatform();
    const { id } = await create(platform);
    const masked = { env: { B: 'b', TOKEN: HIDDEN_VALUE } };
    await expectProblem(await patch(platform, id, masked), 422, [errorAt('env.TOKEN')]);
    const made = await platform.post('/v1/templates', { ...TEMPLATE, ...masked });
    await expectProblem(made, 422, [errorAt('env.TOKEN')]);
  });

  it('is read with endpoints:read and changed with endpoints:write, only by its user', async () => {
    const platform = await startPlatform();
    const { call, keys, post, url } = platform;
    const { id } = await create(platform);
    const path = `/v1/templates/${id}`;
    const issue = async (userId: string, scope: string) => {
      const { key } = await keys.issue({ name: 'k', userId, scopes: [scope] });
      return { headers: { authorization: key } };
    };
    const reader = await issue('owner', 'endpoints:read');
    expect((await call(path, reader)).status).toBe(200);
    await expectProblem(await post('/v1/templates', TEMPLATE, reader), 403);
    await expectProblem(await call(path, { ...reader, method: 'DELETE' }), 403);
    const writer = await issue('owner', 'endpoints:write');
    await expectProblem(await call(path, writer), 403);
    expect((await post(path, { name: 'two' }, { ...writer, method: 'PATCH' })).status).toBe(200);
    const stranger = await issue('bob', 'admin');
    await expectProblem(await call(path, stranger), 404);
    await expectProblem(await post(path, {}, { ...stranger, method: 'PATCH' }), 404);
    await expectProblem(await call(path, { ...stranger, method: 'DELETE' }), 404);
    expect(await readJson(await call('/v1/templates', stranger))).toEqual({ templates: [] });
    await expectProblem(await fetch(url + path), 401);
  });
});
