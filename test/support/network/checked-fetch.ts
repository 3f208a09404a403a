// `fetch` for tests: rejects if an answer does not match the OpenAPI document.
import { checkAnswer, isTold } from '../openapi-check.ts';

/** Reads JSON bodies before it resolves. @throws Error that names the deviation */
export async function fetchChecked(
  input: string | URL | Request,
  init: RequestInit = {},
): Promise<Response> {
  const { method, url } = input instanceof Request ? input : { method: 'GET', url: input };
  const { pathname: path } = new URL(url);
  const response = await fetch(input, init);
  if (!isTold(path)) return response;
  const { headers, status, statusText } = response;
  const seen = { method: init.method ?? method, path, status, headers };
  if (!isRead(headers)) {
    checkAnswer({ ...seen, body: undefined });
    return response;
  }
  const body = await response.text();
  checkAnswer({ ...seen, body });
  return new Response(body === '' ? null : body, { status, statusText, headers });
}

/** Other bodies are text of any length and may never end. */
function isRead(headers: Headers): boolean {
  const type = headers.get('content-type');
  return type === null || /^application\/(problem\+)?json/.test(type);
}
