// SPDX-License-Identifier: Apache-2.0
// COEUS_HD: the mark of functions that the CPU and GPUs run.
#pragma once

#ifdef __CUDACC__
#define COEUS_HD __host__ __device__
#else
#define COEUS_HD
#endif
