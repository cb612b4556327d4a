#include "millstream/codec/npy.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "millstream/core/characters.h"

namespace millstream {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

/// NumPy's code for a dtype without the byte order, e.g. "f4". bfloat16 has none and
/// becomes "?2".
std::string code_of(DType dtype) {
  constexpr std::string_view kLetters = "biiiiuuuuf?ffcc";
  static_assert(kLetters.size() == kDTypes);
  return text(kLetters[static_cast<std::size_t>(dtype)], byte_size(dtype));
}

/// Parses the header of an .npy file: a Python dict with three known keys.
class HeaderParser {
 public:
  HeaderParser(const ByteReader& reader, std::string_view header, std::int64_t at)
      : reader_(reader), header_(header), at_(at) {}

  ArrayLayout parse() {
    ArrayLayout layout;
    std::optional<DType> dtype;
    std::optional<bool> fortran;
    std::optional<std::int64_t> shape_at;
    expect('{');
    while (!accept('}')) {
      const std::int64_t key_at = here();
      const std::string_view key = quoted("a key");
      expect(':');
      if (key == "descr" && !dtype) {
        dtype = descr();
      } else if (key == "fortran_order" && !fortran) {
        fortran = boolean();
      } else if (key == "shape" && !shape_at) {
        skip_spaces();
        shape_at = here();
        layout.shape = shape();
      } else {
        reader_.fail(key_at, "the keys descr, fortran_order and shape, once each",
                     quote_bytes(key));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (next_ != header_.size()) reader_.fail(here(), "the end of the header", found());
    if (!dtype || !fortran || !shape_at) {
      reader_.fail(at_, "descr, fortran_order and shape",
                   "a header that lacks at least one of them");
    }
    if (layout.shape.rank() == 0) {
      reader_.fail(*shape_at, "at least one dimension, which counts the samples", "()");
    }
    // If at most one extent is above 1, both orders are the same.
    const auto longer = [](std::int64_t extent) { return extent > 1; };
    if (*fortran && layout.shape.elements() > 0 &&
        std::ranges::count_if(layout.shape.extents(), longer) > 1) {
      reader_.fail(at_, "fortran_order False, so that each sample is contiguous",
                   "fortran_order True: save numpy.ascontiguousarray(x) instead");
    }
    layout.dtype = *dtype;
    return layout;
  }

 private:
  std::int64_t here() const { return at_ + static_cast<std::int64_t>(next_); }
  std::string found() const {
    return next_ < header_.size() ? quote_bytes(header_.substr(next_, 24))
                                  : "the end of the header";
  }

  void skip_spaces() {
    next_ = std::min(header_.find_first_not_of(" \t\r\n\f", next_), header_.size());
  }
  bool accept(char wanted) {
    skip_spaces();
    if (next_ == header_.size() || header_[next_] != wanted) return false;
    ++next_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) reader_.fail(here(), text("'", wanted, "'"), found());
  }
  bool word(std::string_view wanted) {
    skip_spaces();
    if (!header_.substr(next_).starts_with(wanted)) return false;
    next_ += wanted.size();
    return true;
  }

  std::string_view quoted(std::string_view what) {
    skip_spaces();
    const char mark = next_ < header_.size() ? header_[next_] : '\0';
    const std::size_t end = mark == '\'' || mark == '"' ? header_.find(mark, next_ + 1)
                                                        : std::string_view::npos;
    if (end == std::string_view::npos) {
      reader_.fail(here(), text(what, " in quotes"), found());
    }
    const std::string_view value = header_.substr(next_ + 1, end - next_ - 1);
    next_ = end + 1;
    return value;
  }

  bool boolean() {
    if (word("True")) return true;
    if (word("False")) return false;
    reader_.fail(here(), "True or False", found());
  }

  DType descr() {
    skip_spaces();
    const std::int64_t at = here();
    if (next_ < header_.size() && header_[next_] == '[') {
      reader_.fail(at, "one dtype of numbers", text("a record dtype ", found()));
    }
    const std::string_view value = quoted("a dtype");
    const bool has_order =
        !value.empty() && std::string_view("<>=|").find(value[0]) != value.npos;
    const std::string_view code = value.substr(has_order ? 1 : 0);
    for (int i = 0; i < kDTypes; ++i) {
      const auto dtype = static_cast<DType>(i);
      if (code != code_of(dtype) || dtype == DType::kBfloat16) continue;
      if (!value.starts_with('>') || byte_size(dtype) == 1) return dtype;
      reader_.fail(at, text("little-endian values, '<", code, "'"),
                   text(quote_bytes(value), ": save x.astype('<", code, "') instead"));
    }
    reader_.fail(at, "a dtype of numbers such as '<f4' or '|u1'",
                 value == "|O" ? "'|O', Python objects: save an array of numbers, such "
                                 "as np.stack(list(rows)), instead"
                               : text(quote_bytes(value),
                                      ": convert the array to numbers and save it "
                                      "again"));
  }

  Shape shape() {
    const std::int64_t at = here();
    std::vector<std::int64_t> extents;
    expect('(');
    while (!accept(')')) {
      skip_spaces();
      std::int64_t extent = 0;
      const char* begin = header_.data() + next_;
      const auto [end, code] =
          std::from_chars(begin, header_.data() + header_.size(), extent);
      if (code != std::errc{} || extent < 0) reader_.fail(here(), "an extent", found());
      next_ += static_cast<std::size_t>(end - begin);
      accept('L');  // Python 2 wrote long integers with this suffix
      extents.push_back(extent);
      if (!accept(',')) {
        if (extents.size() == 1) expect(',');  // a tuple of one needs a comma
        expect(')');
        break;
      }
    }
    return stored_shape(reader_, at, extents);
  }

  const ByteReader& reader_;
  std::string_view header_;
  std::int64_t at_;  // offset of the header in the file
  std::size_t next_ = 0;
};

}  // namespace

ArrayLayout parse_npy(ByteReader& reader, std::int64_t size) {
  const std::int64_t start = reader.offset();
  const std::string_view magic = reader.text(6, "the .npy magic");
  if (magic != kMagic) {
    reader.fail(start, text("the .npy magic ", quote_bytes(kMagic)),
                quote_bytes(magic));
  }
  const auto major = reader.little<std::uint8_t>("the .npy version");
  const auto minor = reader.little<std::uint8_t>("the .npy version");
  if (major < 1 || major > 3 || minor != 0) {
    reader.fail(start + 6, ".npy version 1.0, 2.0 or 3.0",
                text(int{major}, ".", int{minor}));
  }
  const std::int64_t length_at = reader.offset();
  const std::int64_t length =
      major == 1 ? std::int64_t{reader.little<std::uint16_t>("a length")}
                 : std::int64_t{reader.little<std::uint32_t>("a length")};
  if (length > kNpyHeader) {
    reader.fail(length_at, text("a header of at most ", kNpyHeader, " bytes"), length);
  }
  const std::int64_t at = reader.offset();
  ArrayLayout layout =
      HeaderParser(reader, reader.text(length, "the header"), at).parse();
  layout.offset = reader.offset() - start;
  check_extent(reader, layout, start, size);
  return layout;
}

std::string npy_header(DType dtype, const Shape& shape) {
  if (dtype == DType::kBfloat16) {
    throw ArgumentError(
        text(".npy files cannot store ", name(dtype), ": convert it to float32 first"));
  }
  std::string dict =
      text("{'descr': '", byte_size(dtype) == 1 ? '|' : '<', code_of(dtype),
           "', 'fortran_order': False, 'shape': ", shape.str(), ", }");
  const std::size_t prefix = kMagic.size() + 4;
  dict.append(63 - (prefix + dict.size()) % 64, ' ');
  dict += '\n';
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(dict.size() & 0xFF),
             static_cast<char>(dict.size() >> 8)};
  return header + dict;
}

}  // namespace millstream
