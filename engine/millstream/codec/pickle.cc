#include "millstream/codec/pickle.h"

#include <unordered_map>
#include <utility>

namespace millstream {

/// The stack machine that runs the instructions of a pickle. It builds values only; it
/// never imports or calls anything.
class PickleMachine {
 public:
  using Kind = PickleValue::Kind;

  PickleMachine(ByteReader& reader, std::vector<PickleValue>& values)
      : reader_(reader), values_(values) {}

  /// Runs all instructions and returns the index of the resulting value.
  std::uint32_t run() {
    for (;;) {
      at_ = reader_.offset();
      const auto code = reader_.little<std::uint8_t>("an instruction");
      if (code == '.') return pop();
      step(code);
    }
  }

 private:
  static constexpr std::size_t kMost = std::size_t{1} << 20;  // values

  void step(std::uint8_t code) {
    switch (code) {
      case 0x80: reader_.take(1, "a protocol"); return;
      case 0x95: reader_.take(8, "a frame"); return;
      case '(': marks_.push_back(stack_.size()); return;
      case '0': pop(); return;
      case 'N': push(Kind::kNone); return;
      case 0x88: push(Kind::kInteger).integer = 1; return;
      case 0x89: push(Kind::kInteger).integer = 0; return;
      case 'K': push(Kind::kInteger).integer = number<std::uint8_t>(); return;
      case 'M': push(Kind::kInteger).integer = number<std::uint16_t>(); return;
      case 'J':
        push(Kind::kInteger).integer =
            static_cast<std::int32_t>(number<std::uint32_t>());
        return;
      case 0x8A: long_integer(); return;
      case 'U':
      case 'C':
      case 0x8C: bytes(number<std::uint8_t>()); return;
      case 'T':
      case 'B':
      case 'X': bytes(number<std::uint32_t>()); return;
      case 0x8D:
      case 0x8E:
      case 0x96: bytes(reader_.size("a length")); return;
      case ']': push(Kind::kList); return;
      case '}': push(Kind::kDict); return;
      case ')': push(Kind::kTuple); return;
      case 0x85: collect(Kind::kTuple, depth(1)); return;
      case 0x86: collect(Kind::kTuple, depth(2)); return;
      case 0x87: collect(Kind::kTuple, depth(3)); return;
      case 't': collect(Kind::kTuple, mark()); return;
      case 'l': collect(Kind::kList, mark()); return;
      case 'd': collect(Kind::kDict, mark()); return;
      case 'a': extend(Kind::kList, depth(1)); return;
      case 'e': extend(Kind::kList, mark()); return;
      case 's': extend(Kind::kDict, depth(2)); return;
      case 'u': extend(Kind::kDict, mark()); return;
      case 'q': memo_[number<std::uint8_t>()] = top(); return;
      case 'r': memo_[number<std::uint32_t>()] = top(); return;
      case 0x94: memo_[static_cast<std::uint32_t>(memo_.size())] = top(); return;
      case 'h': recall(number<std::uint8_t>()); return;
      case 'j': recall(number<std::uint32_t>()); return;
      case 'c':
        line();
        line();
        collect(Kind::kGlobal, depth(2));
        return;
      case 0x93: collect(Kind::kGlobal, depth(2)); return;
      case 'R': call(); return;
      case 'b': extend(Kind::kCall, depth(1)); return;
      default:
        reader_.fail(at_, "an instruction that creates numbers, text or lists",
                     text("instruction ", int{code}, ", which is not run"));
    }
  }

  template <typename T>
  T number() {
    return reader_.little<T>("a number");
  }

  PickleValue& push(Kind kind) {
    if (values_.size() == kMost) {
      reader_.fail(at_, text("at most ", kMost, " values"), "more");
    }
    stack_.push_back(static_cast<std::uint32_t>(values_.size()));
    PickleValue& value = values_.emplace_back();
    value.kind = kind;
    return value;
  }

  std::uint32_t top() const {
    if (stack_.empty()) reader_.fail(at_, "a value on the stack", "none");
    return stack_.back();
  }
  std::uint32_t pop() {
    const std::uint32_t value = top();
    stack_.pop_back();
    return value;
  }

  /// The stack position at which the last `count` values begin.
  std::size_t depth(std::size_t count) const {
    if (stack_.size() < count) {
      reader_.fail(at_, text(count, " values on the stack"), stack_.size());
    }
    return stack_.size() - count;
  }
  /// The stack position after the last mark, which it removes.
  std::size_t mark() {
    if (marks_.empty() || marks_.back() > stack_.size()) {
      reader_.fail(at_, "a mark on the stack", "none");
    }
    const std::size_t begin = marks_.back();
    marks_.pop_back();
    return begin;
  }

  /// Replaces the values from `begin` on by one value that contains them.
  void collect(Kind kind, std::size_t begin) {
    std::vector<std::uint32_t> items = taken(begin);
    check_pairs(kind, items.size());
    push(kind).items = std::move(items);
  }
  /// Records a call without running it. Python 3 writes bytes for protocol 2 as a call
  /// that encodes text in Latin-1; this call becomes the text itself, with `is_latin1`
  /// set.
  void call() {
    collect(Kind::kCall, depth(2));
    const PickleValue& made = values_[top()];
    const PickleValue& function = values_[made.items[0]];
    const PickleValue& arguments = values_[made.items[1]];
    if (function.kind != Kind::kGlobal || arguments.kind != Kind::kTuple ||
        arguments.items.size() != 2 || !says(function, 0, "_codecs") ||
        !says(function, 1, "encode") || !says(arguments, 1, "latin1")) {
      return;
    }
    const PickleValue encoded = values_[arguments.items[0]];
    if (encoded.kind != Kind::kBytes) return;
    values_[top()] = encoded;
    values_[top()].is_latin1 = true;
  }
  bool says(const PickleValue& holder, std::size_t i, std::string_view word) const {
    const PickleValue& item = values_[holder.items[i]];
    return item.kind == Kind::kBytes && item.bytes == word;
  }
  /// Moves the values from `begin` on into the value below them.
  void extend(Kind kind, std::size_t begin) {
    const std::vector<std::uint32_t> items = taken(begin);
    check_pairs(kind, items.size());
    PickleValue& value = values_[top()];
    const bool built = value.kind == Kind::kCall && value.items.size() > 2;
    if (value.kind != kind || built) {
      reader_.fail(at_, "a container to add values to", "another value");
    }
    value.items.insert(value.items.end(), items.begin(), items.end());
  }
  std::vector<std::uint32_t> taken(std::size_t begin) {
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(begin);
    std::vector<std::uint32_t> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    return items;
  }
  void check_pairs(Kind kind, std::size_t items) const {
    if (kind == Kind::kDict && items % 2 != 0) {
      reader_.fail(at_, "pairs of keys and values", text(items, " values"));
    }
  }

  void bytes(std::int64_t count) {
    const std::int64_t offset = reader_.offset();
    const std::string_view view = reader_.text(count, "a string");
    PickleValue& value = push(Kind::kBytes);
    value.bytes = view;
    value.offset = offset;
  }
  void line() {
    const std::string_view view = reader_.text_until('\n', "a name");
    push(Kind::kBytes).bytes = view;
  }
  void long_integer() {
    const auto count = number<std::uint8_t>();
    if (count > 8) reader_.fail(at_, "an integer of at most 8 bytes", int{count});
    std::uint64_t value = 0;
    int shift = 0;
    for (const std::byte byte : reader_.take(count, "an integer")) {
      value |= static_cast<std::uint64_t>(byte) << shift;
      shift += 8;
    }
    const bool negative = shift > 0 && (value >> (shift - 1) & 1) != 0;
    if (negative && shift < 64) value |= ~std::uint64_t{0} << shift;
    push(Kind::kInteger).integer = static_cast<std::int64_t>(value);
  }
  void recall(std::uint32_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) reader_.fail(at_, "the number of a stored value", key);
    stack_.push_back(found->second);
  }

  ByteReader& reader_;
  std::vector<PickleValue>& values_;
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint32_t, std::uint32_t> memo_;
  std::int64_t at_ = 0;  // offset of the current instruction
};

std::vector<std::byte> latin1_bytes(const PickleValue& value,
                                    const ByteReader& reader) {
  std::vector<std::byte> bytes;
  bytes.reserve(value.bytes.size());
  for (std::size_t i = 0; i < value.bytes.size(); ++i) {
    auto byte = static_cast<unsigned char>(value.bytes[i]);
    if (byte >= 0x80) {
      // UTF-8 encodes the characters from 128 to 255 as two bytes: 110000xx 10xxxxxx.
      const auto next = i + 1 < value.bytes.size()
                            ? static_cast<unsigned char>(value.bytes[i + 1])
                            : std::uint8_t{0};
      if ((byte != 0xC2 && byte != 0xC3) || (next & 0xC0) != 0x80) {
        reader.fail(value.offset + static_cast<std::int64_t>(i),
                    "a character below 256 in UTF-8", text("byte ", int{byte}));
      }
      byte = static_cast<unsigned char>((byte & 0x03) << 6 | (next & 0x3F));
      ++i;
    }
    bytes.push_back(std::byte{byte});
  }
  return bytes;
}

Pickle::Pickle(ByteReader& reader) { root_ = PickleMachine(reader, values_).run(); }

const PickleValue* Pickle::find(const PickleValue& dict, std::string_view key) const {
  if (dict.kind != PickleValue::Kind::kDict) return nullptr;
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue& candidate = values_[dict.items[i]];
    if (candidate.kind == PickleValue::Kind::kBytes && candidate.bytes == key) {
      return &values_[dict.items[i + 1]];
    }
  }
  return nullptr;
}

}  // namespace millstream
