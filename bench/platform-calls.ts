// Calls of benchmarks to a platform with the admin key, besides the measured load.
import { setTimeout as sleep } from 'node:timers/promises';
import { request } from 'undici';
import type { Platform } from './processes.ts';

/** Sends POST with a body, GET without. @returns the answer's text */
export async function callPlatform(
  platform: Platform,
  path: string,
  body?: unknown,
): Promise<string> {
  const answer = await (body === undefined ? get(platform, path) : post(platform, path, body));
  return answer.body.text();
}

/** Reads one page of a stream. @returns the number of chunks and the next position */
export async function readPage(
  platform: Platform,
  path: string,
): Promise<{ count: number; next: string }> {
  const page = await get(platform, path);
  const chunks = JSON.parse(await page.body.text());
  return { count: chunks.length, next: String(page.headers['millrace-next']) };
}

/** Waits until the endpoint has completed this number of jobs in total. */
export async function waitForCompleted(
  platform: Platform,
  endpoint: string,
  count: number,
): Promise<void> {
  for (;;) {
    const health = await callPlatform(platform, `/v2/${endpoint}/health`);
    // More, if jobs go on: the count may pass between two calls.
    if (Number(/"completed":(\d+)/.exec(health)?.[1]) >= count) return;
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
