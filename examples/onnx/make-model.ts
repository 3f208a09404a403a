// Writes the network as model.onnx: convolution, ReLU, mean over the picture, a dense layer, softmax.
import { writeFileSync } from 'node:fs';
import { BIAS, DENSE, FILTERS, LABELS } from './network.ts';
import { encodeModel } from './onnx-file.ts';

const model = encodeModel({
  name: 'lines',
  // Named sizes are free: a run takes a batch of any size, with pictures of any size.
  inputs: [{ name: 'pixels', shape: ['batch', 1, 'height', 'width'] }],
  outputs: [{ name: 'probabilities', shape: ['batch', LABELS.length] }],
  weights: [
    { name: 'filters', shape: [FILTERS.length, 1, 3, 3], values: FILTERS.flat() },
    { name: 'dense', shape: [FILTERS.length, LABELS.length], values: DENSE.flat() },
    { name: 'bias', shape: [LABELS.length], values: BIAS },
  ],
  nodes: [
    { operator: 'Conv', inputs: ['pixels', 'filters'], output: 'responses' },
    { operator: 'Relu', inputs: ['responses'], output: 'lines' },
    { operator: 'GlobalAveragePool', inputs: ['lines'], output: 'means' },
    { operator: 'Flatten', inputs: ['means'], output: 'features' },
    { operator: 'MatMul', inputs: ['features', 'dense'], output: 'products' },
    { operator: 'Add', inputs: ['products', 'bias'], output: 'scores' },
    { operator: 'Softmax', inputs: ['scores'], output: 'probabilities' },
  ],
});

writeFileSync(new URL('./model.onnx', import.meta.url), model);
