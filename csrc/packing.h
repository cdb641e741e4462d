// From a checkpoint's rows to packed panels and back.
//
// Codes whose stored format has a packed twin (q8_0; q4_0 and q4_1) are moved, never recomputed; any
// other pair goes through float32. Works on rows, so that fused matrices (query, key and value; gate and
// up) are packed from several tensors. Refuses numbers that are not finite.
#pragma once

#include <cstdint>

#include "layout.h"

namespace slip {

// Bytes of one stored row of `cols` numbers; cols is a multiple of 32 for quantised sources.
int64_t source_row_bytes(Source source, int64_t cols);

int64_t packed_bytes(Format format, int64_t rows, int64_t cols);

// Packs stored row `from` (cols numbers) as output `to` of a packed matrix with zeroed memory.
// Returns false if a number is not finite or doesn't fit the format.
bool pack_row(Source source, const uint8_t* from, int64_t cols, const Matrix& matrix, uint8_t* data, int64_t to);

// One output's weights as float32, `matrix.cols` numbers.
void unpack_row(const Matrix& matrix, int64_t row, float* out);

// Copies output `from` of one packed matrix to output `to` of another of the same format and width.
void copy_row(const Matrix& matrix, int64_t from, uint8_t* data, int64_t to);

}  // namespace slip
