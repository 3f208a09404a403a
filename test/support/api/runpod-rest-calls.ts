// Calls of RunPod's REST API, with the admin key or another one.
import type { Platform } from './platform.ts';

export async function sendRest(
  { call }: Pick<Platform, 'call'>,
  method: string,
  path: string,
  body?: object,
  key?: string,
): Promise<{ status: number; json: unknown }> {
  const response = await call(`/runpod/v2/${path}`, {
    method,
    headers: { 'content-type': 'application/json', ...(key && { authorization: key }) },
    ...(body && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, json: text === '' ? undefined : JSON.parse(text) };
}
