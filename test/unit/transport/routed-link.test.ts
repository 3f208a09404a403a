import { expect, it } from 'vitest';
import { readOwnerUrl } from '../../../src/transport/routed-link.ts';

it.each([
  ['http', 'http://lb.example.com', 'http://10.0.0.1:8080'],
  ['http', 'http://lb.example.com', 'https://10.0.0.1:8080/base'],
  ['http', 'https://lb.example.com', 'https://10.0.0.1:8080'],
  ['grpc', 'grpc://lb.example.com', 'grpc://10.0.0.1:8090'],
  ['grpc', 'https://lb.example.com:8090', 'grpcs://10.0.0.1:8090'],
] as const)('lets over %s a worker of %s follow %s', (carrier, configured, told) => {
  expect(readOwnerUrl(told, { carrier, configured })).toBe(told);
});

it.each([
  ['http', 'http://lb.example.com', 'http://LB.example.com:80/'],
  ['http', 'https://lb.example.com/base/', 'https://lb.example.com:443/base'],
  ['grpc', 'grpcs://lb.example.com:8090', 'https://lb.example.com:8090'],
] as const)('takes over %s %s for the same as %s', (carrier, configured, told) => {
  expect(readOwnerUrl(told, { carrier, configured })).toBe('configured');
});

it.each([
  ['http', 'https://lb.example.com', 'http://10.0.0.1:8080', 'not encrypted'],
  ['grpc', 'grpcs://lb.example.com', 'grpc://10.0.0.1:8090', 'not encrypted'],
  ['grpc', 'https://lb.example.com', 'http://10.0.0.1:8090', 'not encrypted'],
  ['http', 'http://lb.example.com', 'grpc://10.0.0.1:8090', 'its scheme grpc: is not one of http'],
  ['http', 'http://lb.example.com', 'file:///etc/passwd', 'its scheme file: is not one of http'],
  ['http', 'http://lb.example.com', 'http://user:word@10.0.0.1', 'a user, a query or a fragment'],
  ['http', 'http://lb.example.com', 'http://10.0.0.1/?key=1', 'a user, a query or a fragment'],
  ['http', 'http://lb.example.com', 'nowhere', 'not a URL of at most 512 characters'],
  ['http', 'http://lb.example.com', `http://${'x'.repeat(512)}`, 'not a URL of at most 512'],
] as const)('lets over %s no worker of %s follow %s', (carrier, configured, told, why) => {
  expect(() => readOwnerUrl(told, { carrier, configured })).toThrow(why);
});
