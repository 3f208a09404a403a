// The packages that dist/ contains. What others install is then what the tests ran with, and installing Millrace does not
// bring theirs: the packages of gRPC bring protobufjs, which has an install script.
// Not bundled: packages with types in our declarations (pino, undici, zod), and those that find files of their own
// (piscina, systeminformation).
export const BUNDLED_PACKAGES = [
  '@grpc/grpc-js',
  '@grpc/proto-loader',
  '@grpc/reflection',
  '@modelcontextprotocol/server',
  'croner',
  'fast-xml-parser',
  'fastify',
  'grpc-health-check',
  'ignore',
  'ipaddr.js',
  'leven',
  'negotiator',
  'pg',
  'prom-client',
  'tar',
  'yaml',
];
