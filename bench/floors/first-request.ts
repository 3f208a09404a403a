// Floor of a cold start: a process that loads undici and sends one request.
import { request } from 'undici';

await request(process.argv[2] ?? '', { method: 'POST', body: '{}' });
