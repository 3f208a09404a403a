// Tests of the form that the playground makes from a handler's input schema.
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { createClient } from '../../../src/client.ts';
import {
  expectAccessible,
  expectNoSidewaysScroll,
  FORM,
  HOSTILE,
  visit,
  type World,
} from './world.ts';

async function readJson(page: Page): Promise<unknown> {
  await page.getByRole('radio', { name: 'JSON', exact: true }).check();
  const text = await page.getByLabel('Input (JSON)').inputValue();
  await page.getByRole('radio', { name: 'Form', exact: true }).check();
  return JSON.parse(text);
}

/** A schema that wants to run markup, to recurse without end, and to have more fields than a page can show. */
const HOSTILE_SCHEMA = {
  title: '<img src=x onerror="document.title=\'owned\'">',
  description: '<script>document.title="owned"</script>',
  type: 'object',
  properties: {
    ['__proto__']: { type: 'string', title: '<b>proto</b>' },
    constructor: { type: 'string', pattern: '^(a+)+$' },
    deep: { $ref: '#' },
    endless: { $ref: '#/properties/endless' },
    wide: {
      type: 'object',
      properties: Object.fromEntries(
        Array.from({ length: 140 }, (_, n) => [`p${n}`, { $ref: '#/$defs/wide' }]),
      ),
    },
    many: { enum: Array.from({ length: 3_000 }, (_, n) => n) },
    elsewhere: { $ref: 'https://example.com/schema.json' },
    odd: { type: 'no such type', properties: 7, enum: 'text', items: [null] },
  },
  $defs: {
    wide: {
      type: 'object',
      required: ['a', 'b'],
      properties: { a: { $ref: '#/$defs/wide' }, b: { $ref: '#/$defs/wide' } },
    },
  },
  required: ['deep', 'wide'],
};

async function sayHello({ platform }: World, schema: object): Promise<void> {
  const hello = { workerId: 'hostile', incarnation: 1, protocol: 1, version: '1', slots: 1 };
  const response = await fetch(`${platform.url}/v2/${HOSTILE}/worker/hello`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${platform.workerKey}`,
      'content-type': 'application/json',
    },
    body: JSON.stringify({
      ...hello,
      devices: [],
      outbox: [],
      inputSchema: JSON.stringify(schema),
    }),
  });
  expect(response.status).toBe(200);
}

export function describeInputForm(world: () => World): void {
  describe('the form of the playground', () => {
    it('makes an input of all kinds of parts, runs it, and shows what came back', async () => {
      await visit(world(), `/endpoints/${FORM}/playground`, async (page) => {
        await page.getByText('Required and empty: prompt, style, seed').waitFor();
        expect(await page.getByLabel('steps').inputValue()).toBe('20');
        await page.getByRole('button', { name: /Use "A lighthouse/ }).click();
        await page.getByLabel('style').selectOption('drawing');
        await page.getByLabel('steps').fill('7');
        await page.getByLabel('tiled').check();
        await page.getByRole('button', { name: 'Add size' }).click();
        await page.getByLabel('width').fill('640');
        await page.getByLabel('height').fill('480');
        for (const name of ['sky', 'sea', 'sun']) {
          await page.getByRole('button', { name: 'Add to layers' }).click();
          await page.getByLabel('name').last().fill(name);
        }
        await page.getByLabel('weight').last().fill('0.5');
        await page.getByRole('button', { name: 'Remove 2 of layers' }).click();
        await page.getByLabel('seed').first().selectOption('null');
        await page.getByLabel('picture').setInputFiles({
          name: 'a.bin',
          mimeType: 'image/png',
          buffer: Buffer.from([1, 2, 255]),
        });
        await page.getByText('a.bin, 3 bytes').waitFor();
        await page.getByLabel('more').fill('{"a": [1]}');
        await expectAccessible(page);
        await expectNoSidewaysScroll(page);
        const input = {
          ...{ prompt: 'A lighthouse at dusk', style: 'drawing', steps: 7, tiled: true },
          size: { width: 640, height: 480 },
          layers: [
            { name: 'sky', weight: 1 },
            { name: 'sun', weight: 0.5 },
          ],
          ...{ seed: null, picture: 'AQL/', more: { a: [1] } },
        };
        expect(await readJson(page)).toEqual(input);
        expect(await page.getByText('Required and empty').count()).toBe(0);
        await page.getByRole('radio', { name: 'Runsync' }).check();
        await page.getByRole('button', { name: 'Run', exact: true }).click();
        const result = page.getByLabel('Result');
        await result.getByText('Completed').waitFor();
        await result.getByText(/"picture": "AQL\/"/).waitFor();
      });
    });

    it('edits one value with the JSON; the handler has the last word', async () => {
      await visit(world(), `/endpoints/${FORM}/playground`, async (page) => {
        await page.getByRole('radio', { name: 'JSON', exact: true }).check();
        const area = page.getByLabel('Input (JSON)');
        await area.fill('{"prompt": "a", "own": 1, "style": 7');
        await page.getByRole('radio', { name: 'Form', exact: true }).check();
        await page.getByText(/The form needs valid JSON/).waitFor();
        await page.getByRole('radio', { name: 'JSON', exact: true }).check();
        await area.fill('{"prompt": "a", "own": 1, "style": 7}');
        await page.getByRole('radio', { name: 'Form', exact: true }).check();
        await page.getByLabel('prompt').fill('b');
        expect(await page.getByLabel('style').inputValue()).toBe('7');
        expect(await readJson(page)).toEqual({ prompt: 'b', own: 1, style: 7 });
        await page.getByLabel('prompt').press('Control+Enter');
        await page.getByLabel('Result').getByText('input_invalid').first().waitFor();
      });
    });

    it('is bounded for a hostile schema, and shows its markup as text', async () => {
      await sayHello(world(), HOSTILE_SCHEMA);
      await visit(world(), `/endpoints/${HOSTILE}/playground`, async (page) => {
        await page.getByText('<script>document.title="owned"</script>').first().waitFor();
        await page.getByLabel('<b>proto</b>').first().fill('own');
        await page
          .getByLabel('constructor')
          .first()
          .fill(`${'a'.repeat(40)}!`);
        const form = page.locator('.schema-form');
        expect(await form.locator('input, textarea, select, fieldset').count()).toBeLessThan(1_700);
        expect(await form.locator('img, script, b').count()).toBe(0);
        expect(await page.title()).not.toContain('owned');
        const written = Object(await readJson(page));
        expect(Object.hasOwn(written, '__proto__')).toBe(true);
        expect(written.constructor).toMatch(/^a+!$/);
      });
    });

    it('is not there without a schema', async () => {
      const { platform } = world();
      const client = createClient({ url: platform.url, key: platform.adminKey, endpoint: 'quiet' });
      expect(await client.inputSchema()).toEqual({ schema: null, version: null, updatedAt: null });
      await visit(world(), '/endpoints/quiet/playground', async (page) => {
        await page.getByLabel('Input (JSON)').waitFor();
        expect(await page.getByRole('radio', { name: 'Form', exact: true }).count()).toBe(0);
      });
    });
  });
}
