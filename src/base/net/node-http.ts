// Provides `node:http` without its lazy exports. `import … from 'node:http'` reads every export,
// among them WebSocket and MessageEvent, which load Node's built-in undici: 75 ms of processor time
// in each process.
export const http = process.getBuiltinModule('node:http');
