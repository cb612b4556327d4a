#include "millstream/codec/idx.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace millstream {
namespace {

ArrayLayout parse(std::string_view header, std::int64_t size) {
  ByteReader reader(as_bytes(header), "x.idx");
  return parse_idx(reader, size);
}

std::string error(std::string_view header, std::int64_t size) {
  return error_of<DataError>([&] { parse(header, size); });
}

using namespace std::string_view_literals;

TEST(Idx, ReadsHeadersOfEveryType) {
  const ArrayLayout images = parse("\0\0\x08\x03\0\0\0\x02\0\0\0\x03\0\0\0\x04"sv, 40);
  EXPECT_EQ(images.dtype, DType::kUint8);
  EXPECT_EQ(images.shape, (Shape{2, 3, 4}));
  EXPECT_EQ(images.offset, 16);
  EXPECT_FALSE(images.big_endian);
  EXPECT_EQ(parse("\0\0\x09\x01\0\0\0\x02"sv, 10).dtype, DType::kInt8);
  EXPECT_EQ(parse("\0\0\x0B\x01\0\0\0\x02"sv, 12).dtype, DType::kInt16);
  EXPECT_EQ(parse("\0\0\x0C\x01\0\0\0\x02"sv, 16).dtype, DType::kInt32);
  EXPECT_EQ(parse("\0\0\x0D\x01\0\0\0\x02"sv, 16).dtype, DType::kFloat32);
  EXPECT_EQ(parse("\0\0\x0E\x01\0\0\0\x02"sv, 24).dtype, DType::kFloat64);
  EXPECT_TRUE(parse("\0\0\x0E\x01\0\0\0\x02"sv, 24).big_endian);
}

TEST(Idx, RejectsShapesThatAreTooLarge) {
  std::string bytes("\0\0\x08\x03\0\0\0\0", 8);
  bytes += std::string(8, '\xFF');
  ByteReader reader(as_bytes(bytes), "x.idx");
  EXPECT_NE(error_of<DataError>([&] {
              parse_idx(reader, 16);
            }).find("x.idx: offset 4: expected a shape that memory can hold"),
            std::string::npos);
}

TEST(Idx, ErrorsNameOffsetExpectedAndFound) {
  EXPECT_EQ(error("\0\0\x08"sv, 3),
            "x.idx: offset 3: expected 1 bytes of the IDX rank, found 0 bytes");
  EXPECT_EQ(error("\x01\0\x08\x01\0\0\0\x02"sv, 10),
            "x.idx: offset 0: expected the IDX magic 0, found 256");
  EXPECT_EQ(
      error("\0\0\x0A\x01\0\0\0\x02"sv, 10),
      "x.idx: offset 2: expected an IDX type of 8, 9, 11, 12, 13 or 14, found 10");
  EXPECT_EQ(error("\0\0\x08\0"sv, 4),
            "x.idx: offset 3: expected 1 to 12 dimensions, found 0");
  EXPECT_EQ(error("\0\0\x08\x02\0\0\0\x02"sv, 10),
            "x.idx: offset 8: expected 4 bytes of an extent, found 0 bytes");
  EXPECT_EQ(error("\0\0\x08\x01\0\0\0\x02"sv, 9),
            "x.idx: offset 8: expected 2 bytes for uint8 of shape (2,), found 1 bytes");
  EXPECT_EQ(error("\0\0\x08\x01\0\0\0\x02"sv, 11),
            "x.idx: offset 8: expected 2 bytes for uint8 of shape (2,), found 3 bytes");
  EXPECT_NE(error("\0\0\x0E\x03\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"sv, 16)
                .find("offset 4: expected a shape that memory can hold"),
            std::string::npos);
}

TEST(Idx, HeadersRoundTrip) {
  const auto header = idx_header(DType::kInt32, {5, 2});
  ByteReader reader(header, "x.idx");
  const ArrayLayout layout = parse_idx(reader, 12 + 40);
  EXPECT_EQ(layout.shape, (Shape{5, 2}));
  EXPECT_EQ(layout.dtype, DType::kInt32);
  EXPECT_THROW(idx_header(DType::kInt64, {5}), ArgumentError);
  EXPECT_THROW(idx_header(DType::kUint8, {std::int64_t{1} << 32}), ArgumentError);
}

}  // namespace
}  // namespace millstream
