// What measures ask of a platform beside the load that they put on it, with the admin key.
import { setTimeout as sleep } from 'node:timers/promises';
import { request } from 'undici';
import type { Platform } from './processes.ts';

/** POST with a body, GET without. @returns the answer's text */
export async function callPlatform(
  platform: Platform,
  path: string,
  body?: unknown,
): Promise<string> {
  const answer = await (body === undefined ? get(platform, path) : post(platform, path, body));
  return answer.body.text();
}

/** Of a stream. @returns how many chunks it has, and the position behind them */
export async function readPage(
  platform: Platform,
  path: string,
): Promise<{ count: number; next: string }> {
  const page = await get(platform, path);
  const chunks = JSON.parse(await page.body.text());
  return { count: chunks.length, next: String(page.headers['millrace-next']) };
}

/** Of the endpoint, all in all. */
export async function waitForCompleted(
  platform: Platform,
  endpoint: string,
  count: number,
): Promise<void> {
  for (;;) {
    const health = await callPlatform(platform, `/v2/${endpoint}/health`);
    if (health.includes(`"completed":${count},`)) return;
    await sleep(5);
  }
}

function post(platform: Platform, path: string, body: unknown) {
  return request(`${platform.url}${path}`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${platform.adminKey}`,
      'content-type': 'application/json',
    },
    body: JSON.stringify(body),
  });
}

function get(platform: Platform, path: string) {
  return request(`${platform.url}${path}`, {
    headers: { authorization: `Bearer ${platform.adminKey}` },
  });
}
