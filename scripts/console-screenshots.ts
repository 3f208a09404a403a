// Takes the pictures of docs/console; with a folder, pictures of every page, light and dark, on a desktop and on a phone.
// node scripts/console-screenshots.ts [folder]: after `npm run build`, on a machine with Chromium.
import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import sharp from 'sharp';
import { createClient, createPlatform, type FlowJobRequest } from '../src/client.ts';
import { launchBrowser } from '../test/support/browser.ts';
import { sayingOf, standInFolder } from '../test/support/nvidia-smi/stand-in.ts';
import { PlatformProcess } from '../test/support/processes.ts';
import {
  createVersionedEndpoint,
  deploy,
  handlerOf,
  upload,
} from '../test/support/version-project.ts';

const [FOLDER = 'docs/console'] = process.argv.slice(2);
const isWhole = process.argv.length > 2;
/** Pictures that the docs have: <page>-<size>-<theme>. */
const PICTURES: ReadonlySet<string> = new Set([
  ...[
    'overview',
    'endpoint',
    'playground',
    'jobs',
    'flow',
    'failed-jobs',
    'job-output',
    'workers',
  ].map((page) => `${page}-desktop-light`),
  ...['overview', 'playground', 'jobs'].map((page) => `${page}-phone-light`),
  'job-failed-desktop-dark',
]);
const ENDPOINT = 'console';
const SIZES = { desktop: { width: 1280, height: 800 }, phone: { width: 390, height: 780 } };
const THEMES = ['light', 'dark'] as const;
/** The pages poll: after this time, each has its data. */
const SETTLE_MS = 1_500;

const PICTURE = `<svg xmlns="http://www.w3.org/2000/svg" width="640" height="360">
  <rect width="640" height="360" fill="#0b6e7d"/>
  <path d="M0 210c80 0 80 40 160 40s80-40 160-40 80 40 160 40 80-40 160-40v150H0z" fill="#5cc3d1"/>
  <circle cx="470" cy="110" r="54" fill="#fcf1da"/>
</svg>`;

const SAY = { act: 'say', text: 'word ', count: 5 };

/** One job of it runs for minutes. */
const FLOW: FlowJobRequest[] = [
  { name: 'scene', input: SAY },
  { name: 'poster', input: SAY, after: ['scene'] },
  { name: 'caption', input: { act: 'fail', text: 'no words' }, after: ['scene'] },
  { name: 'narration', input: { act: 'chunks', count: 20_000, ms: 15 }, after: ['scene'] },
  { name: 'thumbnail', input: SAY, after: ['poster'] },
  { name: 'print', endpoint: 'transcribe', input: SAY, after: [{ job: 'poster', as: 'image' }] },
  { name: 'translate-de', input: SAY, after: ['caption'] },
  { name: 'translate-fr', input: SAY, after: [{ job: 'caption', onFailure: 'skip' }] },
  { name: 'film', input: SAY, after: ['poster', 'narration'] },
  {
    ...{ name: 'report', input: SAY },
    after: [
      'film',
      ...['translate-de', 'translate-fr'].map((job) => ({ job, onFailure: 'run' as const })),
    ],
  },
];

interface Shot {
  name: string;
  path: string;
}

const CATALOG = {
  cpus: [{ id: 'cpu', vcpuCounts: [2, 4], maxMemory: 8, vcpuPrice: 0.03, memoryPrice: 0.004 }],
  dataCenters: [{ id: 'north', name: 'North hall', networkVolumePrice: 0.07 }],
  users: { owner: { networkVolumes: [{ id: 'shared', name: 'datasets', dataCenterId: 'north' }] } },
};

const folder = mkdtempSync(join(tmpdir(), 'millrace-screenshots-'));
const [catalogFile, secretsKey] = [join(folder, 'catalog.json'), join(folder, 'secrets-key')];
writeFileSync(catalogFile, JSON.stringify(CATALOG));
writeFileSync(secretsKey, `${randomBytes(32).toString('base64')}\n`);

const platform = await PlatformProcess.start({
  endpoints: [ENDPOINT, 'transcribe', 'upscale'],
  args: ['--engine', 'process', '--catalog', catalogFile, '--secrets-key-file', secretsKey],
  env: { PATH: `${standInFolder}${delimiter}${process.env['PATH']}`, ...sayingOf('eight-a100') },
});
const browser = await launchBrowser();
try {
  mkdirSync(FOLDER, { recursive: true });
  await takeAll(browser, await prepare());
} finally {
  await browser.close();
  await platform.close();
  rmSync(folder, { recursive: true });
}

/** Makes jobs, a pod and keys worth looking at. */
async function prepare(): Promise<Shot[]> {
  const { adminKey: key, url } = platform;
  const client = createClient({ url, key, endpoint: ENDPOINT });
  const admin = createPlatform({ url, key });
  await platform.startWorker(ENDPOINT, 'console.ts').find(/connected/);
  await platform.startWorker('upscale', '../../../handlers/image.ts').find(/connected/);
  await createClient({ url, key, endpoint: 'transcribe' }).run({
    audio: 'https://example.com/talk.mp3',
  });
  for (let n = 0; n < 12; n++) await client.runsync({ act: 'say', text: 'word ', count: 5 });
  const failed = await client.run({ act: 'fail', text: 'the model answered with an empty list' });
  await client.wait(failed.id);
  const upscale = createClient({ url, key, endpoint: 'upscale' });
  const image = (await sharp(Buffer.from(PICTURE)).png().toBuffer()).toString('base64');
  const picture = await upscale.run({ image, resize: { width: 320 }, format: 'webp' });
  await upscale.wait(picture.id);
  const running = await client.run({ act: 'chunks', count: 20_000, ms: 15 });
  await admin.keys.create({ name: 'ci', scopes: ['jobs:read', 'jobs:write'] });
  await admin.templates.create({ name: 'whisper', image: 'registry.example.com/whisper:3' });
  await admin.networkVolumes.create({ name: 'models', size: 200 });
  await admin.registries.create({
    ...{ name: 'own', server: 'registry.example.com', username: 'ci', secret: 'token' },
  });
  await admin.budgets.create({ name: 'month', limit: 500 });
  const pod = await admin.pods.create({
    ...{ name: 'notebook', image: 'none', args: `sh -c 'echo Listening on port 8888; sleep 600'` },
    cpu: { id: 'cpu', vcpuCount: 2, memory: 1 },
  });
  const versioned = await createVersionedEndpoint(admin, { name: 'summarise', workersMin: 1 });
  for (const version of ['first', 'second']) {
    const number = await upload(admin, versioned.id, { 'handler.ts': handlerOf(version) });
    await deploy(admin, versioned.id, number);
  }
  await createClient({ url, key, endpoint: versioned.id }).run({ ms: 600_000 });
  const [gpuType] = (await admin.catalog.gpus.page()).items;
  await admin.pods.create({
    ...{ name: 'trainer', image: 'none', args: 'sleep 600' },
    gpu: { id: gpuType?.id ?? '', count: 2 },
  });
  const flow = await client.flows.run({ jobs: FLOW });
  const lines = ['say', 'fail', 'say', 'say'].map(
    (act, n) => `{"id":"${n}","input":{"act":"${act}"}}`,
  );
  const batch = await client.batches.submit(lines.join('\n'));
  const base = `/endpoints/${ENDPOINT}`;
  return [
    { name: 'overview', path: '/' },
    { name: 'endpoint', path: base },
    { name: 'waiting', path: '/endpoints/transcribe' },
    { name: 'playground', path: `${base}/playground` },
    { name: 'jobs', path: `${base}/jobs` },
    { name: 'flows', path: `${base}/flows` },
    { name: 'flow', path: `${base}/flows/${flow.id}` },
    { name: 'batches', path: '/batches' },
    { name: 'batch', path: `${base}/batches/${batch.id}` },
    { name: 'failed-jobs', path: '/failed-jobs' },
    { name: 'job-running', path: `${base}/jobs/${running.id}` },
    { name: 'job-failed', path: `${base}/jobs/${failed.id}` },
    { name: 'job-output', path: `/endpoints/upscale/jobs/${picture.id}` },
    { name: 'settings', path: `${base}/settings` },
    { name: 'pods', path: '/pods' },
    { name: 'pod', path: `/pods/${pod.id}` },
    { name: 'templates', path: '/templates' },
    { name: 'network-volumes', path: '/network-volumes' },
    { name: 'registries', path: '/registries' },
    { name: 'billing', path: '/billing' },
    { name: 'catalog', path: '/catalog' },
    { name: 'keys', path: '/keys' },
    { name: 'limits', path: '/limits' },
    { name: 'gpus', path: '/gpus' },
    { name: 'nodes', path: '/nodes' },
    { name: 'palette', path: '/limits' },
    { name: 'versions', path: `/endpoints/${versioned.id}/versions` },
    { name: 'workers', path: `/endpoints/${versioned.id}` },
  ];
}

/** Replaces what names this machine: its folders, in stacks of errors, and its host, in IDs of workers. */
async function hideMachine(page: Page): Promise<void> {
  const hidden = JSON.stringify([
    [process.cwd(), '/srv/app'],
    [hostname(), 'machine-1'],
  ]);
  await page.evaluate(`{
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      for (const [text, shown] of ${hidden}) {
        texts.currentNode.data = texts.currentNode.data.replaceAll(text, shown);
      }
    }
  }`);
}

async function takeAll(chromium: Browser, shots: readonly Shot[]): Promise<void> {
  for (const theme of THEMES) {
    for (const [size, viewport] of Object.entries(SIZES)) {
      const context = await chromium.newContext({ viewport, colorScheme: theme });
      const page = await context.newPage();
      const isWanted = (name: string) => isWhole || PICTURES.has(`${name}-${size}-${theme}`);
      const take = async (name: string) => {
        const file = `${FOLDER}/${name}-${size}-${theme}.png`;
        const png = await sharp(await page.screenshot()).png({ palette: true, colours: 64 });
        writeFileSync(file, await png.toBuffer());
      };
      await page.goto(`${platform.url}/console/`);
      await page.getByLabel('API key').waitFor();
      if (isWhole) await take('sign-in');
      await page.getByLabel('API key').fill(platform.adminKey);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByRole('heading', { name: 'Overview' }).waitFor();
      for (const { name, path } of shots.filter((shot) => isWanted(shot.name))) {
        await page.goto(`${platform.url}/console${path}`);
        if (name === 'playground') {
          const input = { act: 'say', text: 'water over the wheel, turn ', count: 20, ms: 20 };
          await page.getByRole('radio', { name: 'JSON', exact: true }).check();
          await page.getByLabel('Input (JSON)').fill(JSON.stringify(input, null, 2));
          await page.getByRole('button', { name: 'Run', exact: true }).click();
        }
        if (name === 'palette') {
          await page.getByRole('heading', { level: 1 }).waitFor();
          await page.keyboard.press('Control+k');
          await page.getByRole('combobox', { name: 'Page' }).fill('console');
        }
        await page.waitForTimeout(SETTLE_MS);
        await hideMachine(page);
        await take(name);
      }
      await context.close();
    }
  }
}
