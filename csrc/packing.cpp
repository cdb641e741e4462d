// See packing.h; block formats as GGUF's specification has them.
#include "packing.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace slip {
namespace {

uint16_t half_at(const uint8_t* p) {
  uint16_t half;
  std::memcpy(&half, p, 2);
  return half;
}

int64_t block_bytes(Source source) {
  switch (source) {
    case Source::q8_0: return 34;
    case Source::q4_0: return 18;
    case Source::q4_1: return 20;
    default: return 0;
  }
}

// A group of 32 as codes: value = scale * code + minimum (code - 128 for q8).
struct Group {
  uint8_t codes[kGroup];
  uint16_t scale = 0, minimum = 0;
};

bool finite_half(uint16_t half) { return (half & 0x7c00) != 0x7c00; }

bool read_group(Source source, const uint8_t* block, Group& group) {
  group.scale = half_at(block);
  if (source == Source::q8_0) {
    for (int i = 0; i < 32; ++i) group.codes[i] = uint8_t(block[2 + i] ^ 0x80);
    return finite_half(group.scale);
  }
  const uint8_t* nibbles = block + (source == Source::q4_1 ? 4 : 2);
  for (int i = 0; i < 16; ++i) {
    group.codes[i] = nibbles[i] & 15;
    group.codes[16 + i] = nibbles[i] >> 4;
  }
  // q4_0 stores code - 8; -8 * scale is exact in a half unless it overflows.
  group.minimum = source == Source::q4_1 ? half_at(block + 2) : float_to_half(-8.0f * half_to_float(group.scale));
  return finite_half(group.scale) && finite_half(group.minimum);
}

void group_values(const Group& group, Source source, float* out) {
  const float scale = half_to_float(group.scale);
  const float offset = source == Source::q8_0 ? 128.0f : 0.0f;
  const float minimum = source == Source::q8_0 ? 0.0f : half_to_float(group.minimum);
  for (int i = 0; i < 32; ++i) out[i] = scale * (float(group.codes[i]) - offset) + minimum;
}

// Quantises as GGUF's reference does: symmetric to 127, or 16 steps from smallest to largest.
bool make_group(Format format, const float* x, Group& group) {
  if (format == Format::q8) {
    float largest = 0.0f;
    for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(x[i]));
    group.scale = float_to_half(largest / 127.0f);
    const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    for (int i = 0; i < 32; ++i) group.codes[i] = uint8_t(int(std::nearbyint(x[i] * inverse)) + 128);
    return finite_half(group.scale);
  }
  const float low = *std::min_element(x, x + 32), high = *std::max_element(x, x + 32);
  const float step = (high - low) / 15.0f;
  group.scale = float_to_half(step);
  group.minimum = float_to_half(low);
  const float inverse = step > 0.0f ? 1.0f / step : 0.0f;
  for (int i = 0; i < 32; ++i) {
    group.codes[i] = uint8_t(std::min(15, int((x[i] - low) * inverse + 0.5f)));
  }
  return finite_half(group.scale) && finite_half(group.minimum);
}

// Place of output `row` of a packed matrix.
struct Lane {
  int64_t panel, lane;
  explicit Lane(int64_t row) : panel(row / kPanel), lane(row % kPanel) {}
};

void write_group(const Matrix& matrix, uint8_t* data, int64_t row, int64_t g, const Group& group) {
  const Lane at(row);
  uint8_t* panel = data + at.panel * matrix.panel_stride();
  if (matrix.format == Format::q8) {
    for (int i = 0; i < 32; ++i) panel[(g * 8 + i / 4) * kVector + at.lane * 4 + i % 4] = group.codes[i];
    std::memcpy(panel + matrix.cols / kGroup * 8 * kVector + g * 32 + at.lane * 2, &group.scale, 2);
    return;
  }
  uint8_t* start = panel + g * 5 * kVector;
  for (int p = 0; p < 4; ++p) {
    for (int i = 0; i < 4; ++i) {
      start[p * kVector + at.lane * 4 + i] = uint8_t(group.codes[8 * p + i] | group.codes[8 * p + 4 + i] << 4);
    }
  }
  std::memcpy(start + 4 * kVector + at.lane * 2, &group.scale, 2);
  std::memcpy(start + 4 * kVector + 32 + at.lane * 2, &group.minimum, 2);
}

constexpr int kOctetOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};

void write_number(const Matrix& matrix, uint8_t* data, int64_t row, int64_t k, float value) {
  const Lane at(row);
  uint8_t* panel = data + at.panel * matrix.panel_stride();
  if (matrix.format == Format::f32) {
    std::memcpy(panel + k * kVector + at.lane * 4, &value, 4);
    return;
  }
  const int64_t place = std::find(kOctetOrder, kOctetOrder + 8, k % 8) - kOctetOrder;
  const uint16_t half = float_to_bf16(value);
  std::memcpy(panel + (k / 8 * 4 + place / 2) * kVector + at.lane * 4 + place % 2 * 2, &half, 2);
}

bool read_numbers(Source source, const uint8_t* from, int64_t cols, float* out) {
  bool fine = true;
  if (const int64_t block = block_bytes(source)) {
    for (int64_t g = 0; g < cols / kGroup; ++g) {
      Group group;
      fine &= read_group(source, from + g * block, group);
      group_values(group, source, out + g * kGroup);
    }
    return fine;
  }
  for (int64_t k = 0; k < cols; ++k) {
    if (source == Source::f32) std::memcpy(out + k, from + 4 * k, 4);
    else if (source == Source::f16) out[k] = half_to_float(half_at(from + 2 * k));
    else out[k] = bf16_to_float(half_at(from + 2 * k));
    fine &= std::isfinite(out[k]);
  }
  return fine;
}

bool same_codes(Source source, Format format) {
  return (source == Source::q8_0 && format == Format::q8) ||
         ((source == Source::q4_0 || source == Source::q4_1) && format == Format::q4);
}

}  // namespace

int64_t source_row_bytes(Source source, int64_t cols) {
  if (const int64_t block = block_bytes(source)) return cols / kGroup * block;
  return cols * (source == Source::f32 ? 4 : 2);
}

int64_t packed_bytes(Format format, int64_t rows, int64_t cols) {
  return round_up(rows, kPanel) / kPanel * panel_bytes(format, round_up(cols, kGroup));
}

bool pack_row(Source source, const uint8_t* from, int64_t cols, const Matrix& matrix, uint8_t* data, int64_t to) {
  if (same_codes(source, matrix.format)) {
    for (int64_t g = 0; g < cols / kGroup; ++g) {
      Group group;
      if (!read_group(source, from + g * block_bytes(source), group)) return false;
      write_group(matrix, data, to, g, group);
    }
    return true;
  }
  std::vector<float> row(size_t(matrix.cols), 0.0f);
  if (!read_numbers(source, from, cols, row.data())) return false;
  if (matrix.format == Format::f32 || matrix.format == Format::bf16) {
    for (int64_t k = 0; k < cols; ++k) write_number(matrix, data, to, k, row[size_t(k)]);
    return true;
  }
  for (int64_t g = 0; g < matrix.cols / kGroup; ++g) {
    Group group;
    if (!make_group(matrix.format, row.data() + g * kGroup, group)) return false;
    write_group(matrix, data, to, g, group);
  }
  return true;
}

void unpack_row(const Matrix& matrix, int64_t row, float* out) {
  const Lane at(row);
  const uint8_t* panel = matrix.data + at.panel * matrix.panel_stride();
  switch (matrix.format) {
    case Format::f32:
      for (int64_t k = 0; k < matrix.cols; ++k) std::memcpy(out + k, panel + k * kVector + at.lane * 4, 4);
      return;
    case Format::bf16:
      for (int64_t k = 0; k < matrix.cols; ++k) {
        const int64_t octet = k / 8;
        out[octet * 8 + kOctetOrder[k % 8]] =
            bf16_to_float(half_at(panel + (octet * 4 + k % 8 / 2) * kVector + at.lane * 4 + k % 2 * 2));
      }
      return;
    case Format::q8:
      for (int64_t g = 0; g < matrix.cols / kGroup; ++g) {
        Group group;
        for (int i = 0; i < 32; ++i) group.codes[i] = panel[(g * 8 + i / 4) * kVector + at.lane * 4 + i % 4];
        group.scale = half_at(panel + matrix.cols / kGroup * 8 * kVector + g * 32 + at.lane * 2);
        group_values(group, Source::q8_0, out + g * kGroup);
      }
      return;
    case Format::q4:
      for (int64_t g = 0; g < matrix.cols / kGroup; ++g) {
        const uint8_t* start = panel + g * 5 * kVector;
        Group group;
        for (int i = 0; i < 32; ++i) {
          const uint8_t byte = start[i / 8 * kVector + at.lane * 4 + i % 4];
          group.codes[i] = i % 8 < 4 ? byte & 15 : byte >> 4;
        }
        group.scale = half_at(start + 4 * kVector + at.lane * 2);
        group.minimum = half_at(start + 4 * kVector + 32 + at.lane * 2);
        group_values(group, Source::q4_1, out + g * kGroup);
      }
      return;
  }
}

void copy_row(const Matrix& matrix, int64_t from, uint8_t* data, int64_t to) {
  const Lane source(from), target(to);
  const int64_t stride = matrix.panel_stride(), groups = matrix.cols / kGroup;
  const uint8_t* in = matrix.data + source.panel * stride;
  uint8_t* out = data + target.panel * stride;
  auto copy = [&](int64_t offset, int64_t width) {
    std::memcpy(out + offset + target.lane * width, in + offset + source.lane * width, size_t(width));
  };
  switch (matrix.format) {
    case Format::f32:
    case Format::bf16:
      for (int64_t offset = 0; offset < stride; offset += kVector) copy(offset, 4);
      return;
    case Format::q8:
      for (int64_t v = 0; v < groups * 8; ++v) copy(v * kVector, 4);
      for (int64_t g = 0; g < groups; ++g) copy(groups * 8 * kVector + g * 32, 2);
      return;
    case Format::q4:
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t v = 0; v < 4; ++v) copy((g * 5 + v) * kVector, 4);
        copy((g * 5 + 4) * kVector, 2);
        copy((g * 5 + 4) * kVector + 32, 2);
      }
      return;
  }
}

}  // namespace slip
