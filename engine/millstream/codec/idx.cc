#include "millstream/codec/idx.h"

#include <array>
#include <optional>
#include <utility>

namespace millstream {
namespace {

constexpr std::array<std::pair<std::uint8_t, DType>, 6> kTypes = {
    {{0x08, DType::kUint8},
     {0x09, DType::kInt8},
     {0x0B, DType::kInt16},
     {0x0C, DType::kInt32},
     {0x0D, DType::kFloat32},
     {0x0E, DType::kFloat64}}};

}  // namespace

ArrayLayout parse_idx_header(ByteReader& reader) {
  const std::int64_t start = reader.offset();
  const auto magic = reader.big<std::uint16_t>("the IDX magic");
  if (magic != 0) reader.fail(start, "the IDX magic 0", magic);
  const auto code = reader.big<std::uint8_t>("the IDX type");
  std::optional<DType> dtype;
  for (const auto& [number, type] : kTypes) {
    if (number == code) dtype = type;
  }
  if (!dtype) {
    reader.fail(start + 2, "an IDX type of 8, 9, 11, 12, 13 or 14", int{code});
  }
  const auto rank = reader.big<std::uint8_t>("the IDX rank");
  if (rank == 0 || rank > Shape::kMaxRank) {
    reader.fail(start + 3, text("1 to ", Shape::kMaxRank, " dimensions"), int{rank});
  }
  std::array<std::int64_t, Shape::kMaxRank> extents{};
  for (std::size_t axis = 0; axis < rank; ++axis) {
    extents[axis] = reader.big<std::uint32_t>("an extent");
  }
  ArrayLayout layout;
  layout.dtype = *dtype;
  layout.shape = stored_shape(reader, start + 4, std::span(extents).first(rank));
  layout.offset = reader.offset() - start;
  layout.big_endian = byte_size(*dtype) > 1;
  return layout;
}

ArrayLayout parse_idx(ByteReader& reader, std::int64_t size) {
  const std::int64_t start = reader.offset();
  const ArrayLayout layout = parse_idx_header(reader);
  check_extent(reader, layout, start, size);
  return layout;
}

std::vector<std::byte> idx_header(DType dtype, const Shape& shape) {
  for (const auto& [code, type] : kTypes) {
    if (type != dtype) continue;
    std::vector<std::byte> header = {std::byte{0}, std::byte{0}, std::byte{code},
                                     static_cast<std::byte>(shape.rank())};
    for (const std::int64_t extent : shape.extents()) {
      if (extent >> 32 != 0) {
        throw ArgumentError(text("IDX: a dimension must be below 2^32, not ", extent));
      }
      for (int shift = 24; shift >= 0; shift -= 8) {
        header.push_back(static_cast<std::byte>(extent >> shift));
      }
    }
    return header;
  }
  throw ArgumentError(
      text("IDX holds uint8, int8, int16, int32, float32 and float64, "
           "not ",
           name(dtype)));
}

}  // namespace millstream
