#include "millstream/codec/cifar.h"

#include "millstream/codec/pickle.h"
#include "millstream/core/characters.h"

namespace millstream {
namespace {

using Kind = PickleValue::Kind;

class CifarParser {
 public:
  explicit CifarParser(ByteReader& reader)
      : reader_(reader), start_(reader.offset()), pickle_(reader) {}

  CifarBatch parse(CifarKind kind) const {
    if (pickle_.root().kind != Kind::kDict) fail("a dict", "something else");
    CifarBatch batch;
    find_images(value("data"), batch);
    const bool fine = kind == CifarKind::kCifar100;
    const int classes = cifar_classes(kind);
    batch.labels = labels(fine ? "fine_labels" : "labels", batch.images, classes);
    if (fine) {
      batch.coarse_labels = labels("coarse_labels", batch.images, kCifarCoarse);
    }
    return batch;
  }

 private:
  template <typename Found>
  [[noreturn]] void fail(std::string_view expected, const Found& found) const {
    reader_.fail(start_, expected, found);
  }

  const PickleValue& value(std::string_view key) const {
    const PickleValue* found = pickle_.find(pickle_.root(), key);
    if (found == nullptr) fail(text("a dict with '", key, "'"), "none");
    return *found;
  }

  const PickleValue& item(const PickleValue& holder, std::size_t i, Kind kind,
                          std::string_view what) const {
    if (i >= holder.items.size()) fail(what, "nothing");
    const PickleValue& found = pickle_[holder.items[i]];
    if (found.kind != kind) fail(what, "a value of another kind");
    return found;
  }

  bool calls(const PickleValue& call, std::string_view function) const {
    const PickleValue& global = item(call, 0, Kind::kGlobal, "a function's name");
    return item(global, 1, Kind::kBytes, "a function's name").bytes == function;
  }

  /// NumPy pickles an array as a call whose arguments hold shape, dtype, order and
  /// bytes.
  void find_images(const PickleValue& data, CifarBatch& batch) const {
    if (data.kind != Kind::kCall)
      fail("'data' to be an array", "another kind of value");
    const bool whole = calls(data, "_frombuffer");  // bytes, dtype, shape, order
    if (!whole && !calls(data, "_reconstruct")) {
      fail("'data' to be a NumPy array",
           "a call of another function, which is not run");
    }
    // `_reconstruct` has a state instead: version, shape, dtype, Fortran order, bytes.
    const PickleValue& parts = item(data, whole ? 1 : 2, Kind::kTuple, "an array");
    const PickleValue& shape = item(parts, whole ? 2 : 1, Kind::kTuple, "a shape");
    const PickleValue& dtype = item(parts, whole ? 1 : 2, Kind::kCall, "a dtype");
    const PickleValue& code = item(item(dtype, 1, Kind::kTuple, "a dtype"), 0,
                                   Kind::kBytes, "a dtype's name");
    const bool c_order = whole
                             ? item(parts, 3, Kind::kBytes, "an order").bytes == "C"
                             : item(parts, 3, Kind::kInteger, "an order").integer == 0;
    if (!calls(dtype, "dtype") || code.bytes != "u1" || !c_order) {
      fail("'data' of dtype u1 in C order",
           text("dtype ", escaped(code.bytes),
                c_order ? " in C order" : " in Fortran order"));
    }
    batch.images = item(shape, 0, Kind::kInteger, "a shape").integer;
    const std::int64_t row = item(shape, 1, Kind::kInteger, "a shape").integer;
    if (shape.items.size() != 2 || row != kCifarImage) {
      fail(text("'data' of shape (n, ", kCifarImage, ")"), text("rows of ", row));
    }
    const PickleValue& bytes = item(parts, whole ? 0 : 4, Kind::kBytes, "raw bytes");
    if (bytes.is_latin1) batch.decoded = latin1_bytes(bytes, reader_);
    const auto found = static_cast<std::int64_t>(bytes.is_latin1 ? batch.decoded.size()
                                                                 : bytes.bytes.size());
    if (batch.images < 0 || found % kCifarImage != 0 ||
        found / kCifarImage != batch.images) {
      fail(text(batch.images, " images of ", kCifarImage, " bytes"),
           text(found, " bytes"));
    }
    batch.offset = bytes.offset;
  }

  std::vector<std::uint8_t> labels(std::string_view key, std::int64_t images,
                                   int classes) const {
    const PickleValue& list = value(key);
    if (list.kind != Kind::kList ||
        static_cast<std::int64_t>(list.items.size()) != images) {
      fail(text(images, " ", key, " in a list"), text(list.items.size(), " values"));
    }
    std::vector<std::uint8_t> labels;
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      const std::int64_t label = item(list, i, Kind::kInteger, "a label").integer;
      if (label < 0 || label >= classes) {
        fail(text("'", key, "' of sample ", i, " to be from 0 to ", classes - 1),
             label);
      }
      labels.push_back(static_cast<std::uint8_t>(label));
    }
    return labels;
  }

  const ByteReader& reader_;
  std::int64_t start_;
  Pickle pickle_;
};

}  // namespace

CifarBatch parse_cifar_pickle(ByteReader& reader, CifarKind kind) {
  return CifarParser(reader).parse(kind);
}

}  // namespace millstream
