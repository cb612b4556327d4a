#include "millstream/codec/npy.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace millstream {
namespace {

/// A header as NumPy writes it: magic, version, length, dict, newline.
std::string header(const std::string& dict, int version = 1) {
  std::string all = "\x93NUMPY";
  all += {static_cast<char>(version), '\0'};
  const auto length = static_cast<std::uint32_t>(dict.size() + 1);
  all += version == 1 ? raw(static_cast<std::uint16_t>(length)) : raw(length);
  return all + dict + "\n";
}

std::string dict(const std::string& descr, const std::string& shape,
                 const std::string& fortran = "False") {
  return "{'descr': " + descr + ", 'fortran_order': " + fortran +
         ", 'shape': " + shape + ", }";
}

ArrayLayout parse(const std::string& bytes, std::int64_t payload) {
  ByteReader reader(as_bytes(bytes), "x.npy");
  return parse_npy(reader, static_cast<std::int64_t>(bytes.size()) + payload);
}

std::string error(const std::string& bytes, std::int64_t payload = 0) {
  return error_of<DataError>([&] { parse(bytes, payload); });
}

TEST(Npy, ReadsAllVersions) {
  for (const int version : {1, 2, 3}) {
    const std::string bytes = header(dict("'<f4'", "(3, 2)"), version);
    const ArrayLayout layout = parse(bytes, 24);
    EXPECT_EQ(layout.dtype, DType::kFloat32);
    EXPECT_EQ(layout.shape, (Shape{3, 2}));
    EXPECT_EQ(layout.offset, static_cast<std::int64_t>(bytes.size()));
  }
  EXPECT_NE(error(header(dict("'<f4'", "(3,)"), 4)).find("offset 6"),
            std::string::npos);
}

TEST(Npy, ReadsEveryNumericDtype) {
  const auto dtype_of = [](const std::string& code, std::int64_t bytes) {
    return name(parse(header(dict("'" + code + "'", "(1,)")), bytes).dtype);
  };
  EXPECT_EQ(dtype_of("|b1", 1), "bool");
  EXPECT_EQ(dtype_of("|i1", 1), "int8");
  EXPECT_EQ(dtype_of("<i2", 2), "int16");
  EXPECT_EQ(dtype_of("<i4", 4), "int32");
  EXPECT_EQ(dtype_of("<i8", 8), "int64");
  EXPECT_EQ(dtype_of("|u1", 1), "uint8");
  EXPECT_EQ(dtype_of(">u1", 1), "uint8");
  EXPECT_EQ(dtype_of("<u2", 2), "uint16");
  EXPECT_EQ(dtype_of("<u4", 4), "uint32");
  EXPECT_EQ(dtype_of("<u8", 8), "uint64");
  EXPECT_EQ(dtype_of("<f2", 2), "float16");
  EXPECT_EQ(dtype_of("<f4", 4), "float32");
  EXPECT_EQ(dtype_of("<f8", 8), "float64");
  EXPECT_EQ(dtype_of("<c8", 8), "complex64");
  EXPECT_EQ(dtype_of("<c16", 16), "complex128");
}

TEST(Npy, ReadsOtherSpellings) {
  EXPECT_EQ(
      parse(header("{\"shape\":(2L,3L),\"descr\":\"|u1\",\"fortran_order\":False}"), 6)
          .shape,
      (Shape{2, 3}));
  EXPECT_EQ(parse(header(dict("'|u1'", "(4,)", "True")), 4).shape, (Shape{4}));
  EXPECT_EQ(parse(header(dict("'|u1'", "(1, 4, 1)", "True")), 4).shape,
            (Shape{1, 4, 1}));
  EXPECT_EQ(parse(header(dict("'|u1'", "(4, 0, 2)", "True")), 0).shape,
            (Shape{4, 0, 2}));
  EXPECT_EQ(parse(header(dict("\t'<f4'\r", "\t(2,)\r\n")), 8).shape, (Shape{2}));
  for (const std::string code : {"'f4'", "'=f4'", "'|f4'"}) {
    EXPECT_EQ(parse(header(dict(code, "(2,)")), 8).dtype, DType::kFloat32);
  }
  EXPECT_EQ(parse(header(dict("'|u1'", "(0, 4)")), 0).shape, (Shape{0, 4}));
}

TEST(Npy, ErrorsNameOffsetExpectedAndFound) {
  EXPECT_EQ(error("\x93NUM"),
            "x.npy: offset 0: expected 6 bytes of the .npy magic, found 4 bytes");
  EXPECT_EQ(
      error("PK\x03\x04 and more"),
      "x.npy: offset 0: expected the .npy magic '\\x93NUMPY', found 'PK\\x03\\x04 a'");
  EXPECT_EQ(error(header(dict("'|u1'", "(4,)")).substr(0, 40)),
            "x.npy: offset 10: expected 58 bytes of the header, found 30 bytes");
  EXPECT_NE(error(header(dict("'<f4'", "(4, 2)", "True")), 32)
                .find("found fortran_order True"),
            std::string::npos);
  EXPECT_NE(error(header(dict("'>f4'", "(4,)")), 16)
                .find("offset 20: expected little-endian values, '<f4', found '>f4'"),
            std::string::npos);
  EXPECT_NE(error(header(dict("'|O'", "(4,)")), 32).find("found '|O'"),
            std::string::npos);
  EXPECT_NE(error(header(dict("[('a', '<f4')]", "(4,)")), 16).find("a record dtype"),
            std::string::npos);
  EXPECT_NE(error(header(dict("'<U3'", "(4,)")), 48).find("found '<U3'"),
            std::string::npos);
  EXPECT_NE(error(header(dict("'<M8[ns]'", "(4,)")), 32).find("found '<M8[ns]'"),
            std::string::npos);
  EXPECT_NE(error(header(dict("'<f4'", "()")), 4).find("at least one dimension"),
            std::string::npos);
  EXPECT_NE(error(header(dict("'<f4'", "(-4,)")), 4).find("expected an extent"),
            std::string::npos);
  EXPECT_NE(error(header(dict("'<f4'", "(4,)")), 15)
                .find("expected 16 bytes for float32 of shape (4,), found 15 bytes"),
            std::string::npos);
  EXPECT_NE(error(header(dict("'<f8'", "(4611686018427387904, 4)")), 1)
                .find("a shape that memory can hold"),
            std::string::npos);
  EXPECT_NE(error(header(dict("'<f8'", "(0, 1152921504606846976, 16)")))
                .find("a shape that memory can hold"),
            std::string::npos);
  EXPECT_NE(error(header(dict("'<f8'", "(6)")), 48).find("expected ','"),
            std::string::npos);
  EXPECT_NE(
      error(header(dict(std::string("'\0f4'", 5), "(6,)")), 24).find("found '\\x00f4'"),
      std::string::npos);
  EXPECT_NE(error(header(dict("'<f8'", "(99999999999999999999,)")), 1)
                .find("expected an extent"),
            std::string::npos);
  EXPECT_NE(error(header("{'descr': '<f4', 'descr': '<f4'}")).find("once each"),
            std::string::npos);
  EXPECT_NE(
      error(header("{'shape': (1,)}")).find("a header that lacks at least one of them"),
      std::string::npos);
  EXPECT_NE(error(header(dict("'<f4'", "(1,)") + " more"), 4)
                .find("expected the end of the header"),
            std::string::npos);
}

TEST(Npy, WritesAlignedHeaders) {
  for (const Shape& shape : {Shape{7}, Shape{1000000, 28, 28}, Shape{0, 3}}) {
    const std::string bytes = npy_header(DType::kFloat32, shape);
    EXPECT_EQ(bytes.size() % 64, 0u);
    const ArrayLayout layout = parse(bytes, 4 * shape.elements());
    EXPECT_EQ(layout.shape, shape);
    EXPECT_EQ(layout.dtype, DType::kFloat32);
  }
  EXPECT_NE(npy_header(DType::kBool, {1}).find("'|b1'"), std::string::npos);
  EXPECT_THROW(npy_header(DType::kBfloat16, {1}), ArgumentError);
}

}  // namespace
}  // namespace millstream
